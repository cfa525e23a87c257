// Folders that are written under another name and renamed when complete, and that are renamed again before they are
// removed: a name that counts never belongs to half a folder.
#pragma once

#include <string>
#include <string_view>

namespace train_gpt {

// Suffixes of a folder that is being moved in or out.
inline constexpr const char* kPartial = ".partial";    // being written
inline constexpr const char* kReplaced = ".replaced";  // being replaced; may be the only complete one
inline constexpr const char* kRemoved = ".removed";    // being removed

// Errors: std::runtime_error naming the folder and the system's reason.

// Makes folder + kPartial, empty.
std::string make_partial(const std::string& folder);
// Renames folder + kPartial, which is complete, to `folder`. A folder that already has this name is kept beside it
// under another name until then.
void take_place(const std::string& folder);
// Repairs an interrupted take_place(): `folder` exists afterwards if it did before.
void finish_taking_place(const std::string& folder);

// Does nothing if the folder does not exist.
void remove_folder(const std::string& folder);
// Renames it first, so that no half of it keeps the name.
void remove_whole_folder(const std::string& folder);
void rename_folder(const std::string& from, const std::string& to);

}  // namespace train_gpt
