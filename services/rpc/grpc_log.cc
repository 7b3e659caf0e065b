#include "services/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/rpc/one_line.h"

namespace penstock {
namespace {

struct GrpcLog {
  std::string name;
  bool writes = false;
};

// gRPC takes a plain function for the whole process, hence this one variable; its threads may log to the very end.
const GrpcLog* grpc_log = nullptr;

void Write(gpr_log_func_args* arguments) {
  if (!grpc_log->writes) return;
  const char level = *gpr_log_severity_string(arguments->severity);  // "D", "I" or "E"
  const std::string line =
      LogLine(absl::Now(), level, grpc_log->name, absl::StrCat("gRPC: ", arguments->message));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void WriteGrpcLog(const std::string& name, bool errors) {
  if (grpc_log != nullptr) return;
  // Without the variable gRPC hands out errors alone.
  grpc_log = new GrpcLog{name, errors || std::getenv("GRPC_VERBOSITY") != nullptr};
  gpr_set_log_function(Write);
}

}  // namespace penstock
