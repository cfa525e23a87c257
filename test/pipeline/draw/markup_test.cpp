#include "pipeline/draw/markup.h"

#include <gtest/gtest.h>

namespace train_gpt {
namespace {

TEST(Markup, EscapesWhatMarkupMeansAndDropsWhatXmlForbids) {
  EXPECT_EQ(escaped_markup("a<b>&'\"c"), "a&lt;b&gt;&amp;&#39;&quot;c");
  EXPECT_EQ(escaped_markup("tab\there \x1b[31mred\x07\nnext"), "tabhere [31mred\nnext");
  EXPECT_EQ(escaped_markup("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"), "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80");
  EXPECT_EQ(escaped_markup("\xff\xc0\x80 \xed\xa0\x80"),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(escaped_markup("\xef\xbf\xbe|\xc2\x9b|"), "||") << "U+FFFE and a C1 control";
}

TEST(Printable, NothingMovesTheCursor) {
  EXPECT_EQ(printable("line\n\tindented"), "line\n\tindented");
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("\x1b[2Jgone\r\x7f"), "\\x1b[2Jgone\\x0d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "CSI as one character of eight bits";
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m")
      << "and as one byte";
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc3\xa9\xe2\x82\xac"), "\xc3\xa9\xe2\x82\xac");
  for (int c = 0; c < 256; ++c) {
    for (const char shown : printable(std::string(1, static_cast<char>(c)))) {
      const auto byte = static_cast<unsigned char>(shown);
      EXPECT_TRUE(byte == '\n' || byte == '\t' || (byte >= 0x20 && byte < 0x7f)) << c;
    }
  }
}

}  // namespace
}  // namespace train_gpt
