// Folders that are written beside their name and take it when they are whole, and that leave it before they are
// removed: at no moment is there half a folder under a name that counts.
#pragma once

#include <string>
#include <string_view>

namespace train_gpt {

// What is put behind the name of a folder that is on its way in or out.
inline constexpr const char* kPartial = ".partial";    // being written
inline constexpr const char* kReplaced = ".replaced";  // giving its name to another; may be the only complete one
inline constexpr const char* kRemoved = ".removed";    // being removed

// Errors: std::runtime_error naming the folder and the system's reason.

// Makes folder + kPartial, empty.
std::string make_partial(const std::string& folder);
// Puts folder + kPartial, which is complete, in the place of `folder`. What has this name already stays beside it until
// then.
void take_place(const std::string& folder);
// What an interrupted take_place() left: `folder` is again there if it was.
void finish_taking_place(const std::string& folder);

// Nothing of this name: nothing happens.
void remove_folder(const std::string& folder);
// Under another name first.
void remove_whole_folder(const std::string& folder);
void rename_folder(const std::string& from, const std::string& to);

}  // namespace train_gpt
