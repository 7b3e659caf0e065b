// Certificates for tests: an authority in a temporary directory.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "services/security/authority_directory.h"
#include "services/security/credential_directory.h"

namespace penstock {

class TestAuthority {
 public:
  TestAuthority() {
    directory_ = ::testing::TempDir() + "penstock-authority-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    // Old enough for certificates that have expired.
    const absl::Time made = absl::Now() - absl::Hours(24);
    EXPECT_TRUE(AuthorityDirectory::Make(directory_, "penstock", made).ok());
  }
  ~TestAuthority() { std::filesystem::remove_all(directory_); }
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  const std::string& directory() const { return directory_; }
  AuthorityDirectory Open() const { return *AuthorityDirectory::Open(directory_); }

  // The directory of new credentials. They begin five minutes before `from`.
  std::string Issue(Role role, const std::string& name = "",
                    absl::Duration lifetime = absl::Hours(1), absl::Time from = absl::Now()) const {
    const auto issued = Open().Issue(role, name, {"localhost", "127.0.0.1"}, lifetime, from);
    EXPECT_TRUE(issued.ok()) << issued.status();
    return issued.ok() ? issued->directory : "";
  }

 private:
  std::string directory_;
};

}  // namespace penstock
