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

std::vector<fs::path> FilesWith(const std::string& extension) {
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(kRoot), end; it != end; ++it) {
    const std::string name = it->path().filename().string();
    const bool skipped = name == "build" || name == "demo-output" || name.starts_with(".");
    if (it->is_directory() && skipped) it.disable_recursion_pending();
    if (it->is_regular_file() && it->path().extension() == extension) files.push_back(it->path());
  }
  return files;
}

TEST(Documents, LinkToFile_TargetExists) {
  const std::regex link(R"(\]\(([^)#\s]+)(#[^)]*)?\))");
  int links = 0;
  for (const fs::path& file : FilesWith(".md")) {
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

// Comments name documents by their path, or by their name if they are in the same folder.
TEST(Documents, NamedInAHeader_Exists) {
  const std::regex document(R"([\w./-]*\w\.md\b)");
  int documents = 0;
  for (const fs::path& file : FilesWith(".h")) {
    const std::string text = ReadFile(file);
    for (std::sregex_iterator it(text.begin(), text.end(), document), end; it != end; ++it) {
      const std::string name = it->str();
      const bool here = name.find('/') == std::string::npos;
      EXPECT_TRUE(fs::exists((here ? file.parent_path() : kRoot) / name))
          << fs::relative(file, kRoot) << " speaks of " << name << ", which does not exist";
      ++documents;
    }
  }
  EXPECT_GT(documents, 1) << "the pattern finds no documents any more";
}

TEST(Documents, FolderOfTheServices_HasReadme) {
  const std::string services = ReadFile(kRoot / "services" / "README.md");
  const std::regex row(R"(\n\| `([a-z]+)/` \|)");
  int folders = 0;
  for (std::sregex_iterator it(services.begin(), services.end(), row), end; it != end; ++it) {
    const std::string folder = (*it)[1];
    EXPECT_TRUE(fs::exists(kRoot / "services" / folder / "README.md")) << folder;
    ++folders;
  }
  EXPECT_GE(folders, 6) << "the table of folders was not found";
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
