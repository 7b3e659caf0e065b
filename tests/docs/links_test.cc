// The documents hold together: every link to a file of this repository leads somewhere, and every
// folder of the architecture introduces itself.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace penstock {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = PENSTOCK_SOURCE_DIR;

std::string ReadFile(const fs::path& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

std::vector<fs::path> MarkdownFiles() {
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(kRoot), end; it != end; ++it) {
    const std::string name = it->path().filename().string();
    const bool skipped = name == "build" || name == "demo-output" || name.starts_with(".");
    if (it->is_directory() && skipped) it.disable_recursion_pending();
    if (it->is_regular_file() && it->path().extension() == ".md") files.push_back(it->path());
  }
  return files;
}

TEST(Documents, LinkToFile_TargetExists) {
  const std::regex link(R"(\]\(([^)#\s]+)(#[^)]*)?\))");
  int links = 0;
  for (const fs::path& file : MarkdownFiles()) {
    const std::string text = ReadFile(file);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.find("://") != std::string::npos) continue;
      EXPECT_TRUE(fs::exists(file.parent_path() / target))
          << fs::relative(file, kRoot) << " links to " << target << ", which does not exist";
      ++links;
    }
  }
  EXPECT_GT(links, 20) << "the pattern finds no links any more";
}

TEST(Documents, FolderOfTheArchitecture_HasReadme) {
  const std::string architecture = ReadFile(kRoot / "docs" / "ARCHITECTURE.md");
  const std::regex row(R"(\n\| `([a-z]+)/` \|)");
  int folders = 0;
  for (std::sregex_iterator it(architecture.begin(), architecture.end(), row), end; it != end;
       ++it) {
    const std::string folder = (*it)[1];
    EXPECT_TRUE(fs::exists(kRoot / folder / "README.md")) << folder << "/README.md is missing";
    ++folders;
  }
  EXPECT_GE(folders, 10) << "the table of folders was not found";
}

}  // namespace
}  // namespace penstock
