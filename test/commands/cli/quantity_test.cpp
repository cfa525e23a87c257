#include "commands/cli/quantity.h"

#include <cstdint>

#include "commands/cli/options_value.h"
#include "test/refused.h"

namespace train_gpt {
namespace {

// -1 where the text is refused.
double parsed(const char* text, Quantity quantity) {
  const std::optional<ParsedQuantity> it = parse_quantity(text, quantity);
  return it ? static_cast<double>(it->value) : -1;
}

TEST(Quantity, Counts) {
  EXPECT_EQ(parsed("1000", Quantity::count), 1000);
  EXPECT_EQ(parsed("1e3", Quantity::count), 1000);
  EXPECT_EQ(parsed("2.5k", Quantity::count), 2500);
  EXPECT_EQ(parsed("1.5B", Quantity::count), 1.5e9);
  for (const char* text : {"", "k", "1 k", "1kk", "1e", "0x10", "1,000", "1k5", "nan", "inf", "1e9999", "+1", "1s"}) {
    EXPECT_EQ(parsed(text, Quantity::count), -1) << text;
  }
}

TEST(Quantity, Bytes) {
  EXPECT_EQ(parsed("4GB", Quantity::bytes), 4e9);
  EXPECT_EQ(parsed("100KB", Quantity::bytes), 1e5);
  EXPECT_EQ(parsed("100kB", Quantity::bytes), 1e5);
  EXPECT_EQ(parsed("1.5gib", Quantity::bytes), 1.5 * (1 << 30));
  EXPECT_EQ(parsed("1e3", Quantity::bytes), 1000);
  for (const char* text : {"80G", "xGB", "GB", "1GBs", "1GB2MB", "1bit"}) {
    EXPECT_EQ(parsed(text, Quantity::bytes), -1) << text << ": neither 1000 nor 1024 is certain, or no size at all";
  }
}

TEST(Quantity, Durations) {
  EXPECT_DOUBLE_EQ(parsed("1.5ms", Quantity::duration), 0.0015);
  EXPECT_DOUBLE_EQ(parsed("250us", Quantity::duration), 250e-6);
  EXPECT_EQ(parsed("15min", Quantity::duration), 900);
  EXPECT_EQ(parsed("3h50m", Quantity::duration), 13800);
  EXPECT_EQ(parsed("1d2h3min4s", Quantity::duration), 86400 + 7200 + 180 + 4);
  EXPECT_EQ(parsed("90", Quantity::duration), 90);
  EXPECT_EQ(parsed("03:50:00", Quantity::duration), 13800);
  EXPECT_EQ(parsed("90:30", Quantity::duration), 90 * 60 + 30) << "minutes and seconds";
  EXPECT_EQ(parsed("1-02:30", Quantity::duration), 86400 + 9000) << "days, hours and minutes";
  EXPECT_EQ(parsed("2-00:00:05", Quantity::duration), 2 * 86400 + 5);
  for (const char* text :
       {"3m50h", "3h3h", "3h50", "1h-5m", "h", "1:60", "1:2:3:4", ":30", "1:", "1--2:30", "1.5-2:30"}) {
    EXPECT_EQ(parsed(text, Quantity::duration), -1) << text;
  }
}

TEST(Quantity, Bandwidths) {
  EXPECT_EQ(parsed("25GB/s", Quantity::bandwidth), 25e9);
  EXPECT_EQ(parsed("200Gbit/s", Quantity::bandwidth), 25e9);
  EXPECT_EQ(parsed("1GiB/s", Quantity::bandwidth), 0x1p30);
  for (const char* text : {"25GB", "25Gb/s", "25 GB/s"}) EXPECT_EQ(parsed(text, Quantity::bandwidth), -1) << text;
}

OptionValue value(const char* text) { return {"--option", text}; }

TEST(OptionValue, ANumberAloneIsInTheOptionsOwnUnit) {
  EXPECT_EQ(value("120").seconds(0, 1e6), 120);
  EXPECT_EQ(value("2min").seconds(0, 1e6), 120);
  EXPECT_EQ(value("1.5").milliseconds(0, 1e6), 1.5);
  EXPECT_EQ(value("1.5ms").milliseconds(0, 1e6), 1.5);
  EXPECT_EQ(value("0.1ms").milliseconds(0, 1e6), 0.1);
  EXPECT_EQ(value("2s").milliseconds(0, 1e6), 2000);
  EXPECT_EQ(value("25").gigabytes_per_second(0, 1e6), 25);
  EXPECT_EQ(value("200Gbit/s").gigabytes_per_second(0, 1e6), 25);
  EXPECT_TRUE(value("15min").is_time());
  EXPECT_FALSE(value("15").is_time());
  EXPECT_FALSE(value("15 parsecs").is_time());
  EXPECT_REFUSED(value("2 s").milliseconds(0, 1), "--option: '2 s' is not a time", "number of ms", "3h50m");
  EXPECT_REFUSED(value("2s").milliseconds(0, 1000), "--option: '2s' is out of range; give 0 to 1000 ms");
  EXPECT_REFUSED(value("3 GB").gigabytes_per_second(0, 1), "is not a rate", "200Gbit/s");
}

TEST(OptionValue, WholeNumbersAreExactToTheLastBit) {
  EXPECT_EQ(value("18446744073709551615").integer<std::uint64_t>(0), 18446744073709551615ULL);
  EXPECT_EQ(value("9223372036854775807").integer<std::int64_t>(0), 9223372036854775807LL);
  EXPECT_EQ(value("9007199254740993").integer<std::int64_t>(0), 9007199254740993LL) << "2^53 + 1";
  EXPECT_EQ(value("1.5e3").integer<int>(0), 1500);
  EXPECT_EQ(value("10k").integer<int>(0), 10000);
  EXPECT_REFUSED(value("18446744073709551616").integer<std::uint64_t>(0), "out of range");
  EXPECT_REFUSED(value("1.5").integer<int>(0), "'1.5' is not a whole number; give 0 or more");
  EXPECT_REFUSED(value("3G").integer<int>(0, 1000), "'3G' is out of range; give 0 to 1000");
}

TEST(OptionValue, NumbersAreTheNearestDouble) {
  for (const char* text : {"0.1", "3e-4", "0.95", "1e-8", "2.2250738585072011e-308",
                           "0.500000000000000166533453693773481063544750213623046875"}) {
    EXPECT_EQ(value(text).number(0), std::strtod(text, nullptr)) << text;
  }
}

}  // namespace
}  // namespace train_gpt
