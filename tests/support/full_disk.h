// FullDisk: while it lives, files of this process cannot grow beyond a size, as on a disk that is full.
//
// For the whole process, so what a test prints into a file may be lost meanwhile: expectations come after it.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

namespace penstock {

class FullDisk {
 public:
  explicit FullDisk(rlim_t file_bytes_max = 1) {
    signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit full = {.rlim_cur = file_bytes_max, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  }
  ~FullDisk() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace penstock
