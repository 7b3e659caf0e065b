#include "services/coordinator/checkpoint_files_service.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "penstock/v1/checkpoint_files.grpc.pb.h"
#include "services/coordinator/checkpoint_parts.h"
#include "services/rpc/data_part.h"

namespace penstock {
namespace {

absl::Status NoRootError() {
  return absl::FailedPreconditionError(
      "this coordinator has no checkpoints: start it with --checkpoint-root DIR, or the worker "
      "with --checkpoint-root DIR instead of coordinator");
}

}  // namespace

void AddCheckpointFilesService(RpcServer& server, Files* files) {
  using Service = v1::CheckpointFiles::AsyncService;
  Service& service = server.AddService<Service>(Callers::kData);
  const std::shared_ptr<CheckpointParts> parts =
      files == nullptr ? nullptr : std::make_shared<CheckpointParts>(*files);
  server.Unary(service, &Service::RequestWritePart,
               [parts](const v1::WritePartRequest& request,
                       const CallInfo&) -> absl::StatusOr<v1::WritePartResponse> {
                 if (parts == nullptr) return NoRootError();
                 PENSTOCK_RETURN_IF_ERROR(Annotate(
                     CheckPart(request), absl::StrCat(request.path(), " at ", request.offset())));
                 return parts->Write(request);
               });
  server.Unary(service, &Service::RequestReadPart,
               [parts](const v1::ReadPartRequest& request,
                       const CallInfo&) -> absl::StatusOr<v1::ReadPartResponse> {
                 if (parts == nullptr) return NoRootError();
                 return parts->Read(request);
               });
}

}  // namespace penstock
