// Where programs log: standard error, a line for each message, whatever stands in it. Much of what is logged was written
// by others (names, paths, errors of peers), who must not be able to forge lines, colours, or gigabytes.
//
// In a header, so that those programs alone need spdlog. Thread safety: from any thread.
#pragma once

#include <spdlog/sinks/sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string>
#include <utility>

#include "services/rpc/one_line.h"

namespace penstock {

class OneLineStderrSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    const std::string line = OneLine({message.payload.data(), message.payload.size()});
    spdlog::details::log_msg clean = message;
    clean.payload = line;
    stderr_.log(clean);
  }
  void flush() override { stderr_.flush(); }
  void set_pattern(const std::string& pattern) override { stderr_.set_pattern(pattern); }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    stderr_.set_formatter(std::move(formatter));
  }

 private:
  spdlog::sinks::stderr_sink_mt stderr_;
};

}  // namespace penstock
