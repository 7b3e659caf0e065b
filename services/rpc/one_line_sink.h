// Where programs log: standard error, a line for each message (LogLine), whatever stands in it. Much of what is logged was
// written by others (names, paths, errors of peers), who must not be able to forge lines, colours, or gigabytes.
//
// In a header, so that those programs alone need spdlog. Thread safety: from any thread.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstdio>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "services/rpc/one_line.h"

namespace penstock {

class OneLineStderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::string line =
        LogLine(absl::FromChrono(message.time), *spdlog::level::to_short_c_str(message.level),
                {message.logger_name.data(), message.logger_name.size()},
                {message.payload.data(), message.payload.size()});
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override {}  // standard error keeps nothing back
};

}  // namespace penstock
