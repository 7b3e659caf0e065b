#include "services/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <cstdlib>

namespace penstock {
namespace {

// gRPC takes a plain function for the whole process, hence this one variable.
std::atomic<void (*)(const char*)> log_sink = nullptr;

void Forward(gpr_log_func_args* arguments) {
  if (arguments->severity != GPR_LOG_SEVERITY_ERROR) return;
  if (auto* sink = log_sink.load()) sink(arguments->message);
}

}  // namespace

void SetGrpcLogSink(void (*sink)(const char* message)) {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  log_sink = sink;
  gpr_set_log_function(Forward);
}

}  // namespace penstock
