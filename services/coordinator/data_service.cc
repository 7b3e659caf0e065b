#include "services/coordinator/data_service.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "penstock/v1/data.grpc.pb.h"
#include "services/rpc/data_part.h"
#include "services/rpc/limits.h"

namespace penstock {
namespace {

using Service = v1::DataService::AsyncService;

constexpr size_t kFilesPerList = 1000;

absl::Status NoStoreError() {
  return absl::FailedPreconditionError(
      "this coordinator keeps no files of users: start it with --data-directory DIR, or put the "
      "file where all workers find it");
}

absl::StatusOr<v1::FindDataResponse> Find(DigestStore& store, const std::string& sha256) {
  PENSTOCK_ASSIGN_OR_RETURN(const DigestStore::File file, store.Find(sha256));
  v1::FindDataResponse response;
  response.set_size_bytes(file.size_bytes);
  response.set_held_bytes(file.held_bytes);
  response.set_whole(file.whole);
  return response;
}

absl::StatusOr<v1::WriteDataResponse> Write(DigestStore& store,
                                            const v1::WriteDataRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(Annotate(
      CheckPart(request), absl::StrCat("sha256:", request.sha256(), " at ", request.offset())));
  v1::WriteDataResponse response;
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t held, store.Append(request.sha256(), request.size_bytes(),
                                                             request.offset(), request.bytes()));
  response.set_held_bytes(held);
  return response;
}

absl::StatusOr<v1::ReadDataResponse> Read(DigestStore& store, const v1::ReadDataRequest& request) {
  absl::StatusOr<DigestStore::Part> part =
      store.Read(request.sha256(), request.offset(),
                 std::min<int64_t>(request.bytes_max(), rpc_limits::kDataPartBytesMax));
  if (absl::IsNotFound(part.status())) {
    return absl::NotFoundError(
        absl::StrCat(part.status().message(),
                     ": put the file again with `penstock data put` (of several "
                     "coordinators only the one that took a file has it)"));
  }
  PENSTOCK_RETURN_IF_ERROR(part.status());
  v1::ReadDataResponse response;
  response.set_size_bytes(part->size_bytes);
  SetPart(std::move(part->bytes), response);
  return response;
}

v1::ListDataResponse List(DigestStore& store, const std::string& after) {
  v1::ListDataResponse response;
  for (const DigestStore::File& file : store.List(after, kFilesPerList)) {
    v1::StoredData& stored = *response.add_files();
    stored.set_sha256(file.sha256);
    stored.set_size_bytes(file.size_bytes);
    stored.set_held_bytes(file.held_bytes);
    stored.set_whole(file.whole);
  }
  return response;
}

void AddAudited(RpcServer& server, Service& service, DigestStore* store, const Auditor& audit) {
  // Requests live until the reply. What is no digest is not written down.
  const auto action = [](const char* verb, const std::string& sha256) {
    return AuditedAction{absl::StrCat(verb, " sha256:", IsSha256Hex(sha256) ? sha256 : "?")};
  };
  server.UnaryAsync(service, &Service::RequestFinishData,
                    [=](const v1::FinishDataRequest& request, const CallInfo& call,
                        const Reply<v1::FinishDataResponse>& reply) {
                      if (store == nullptr) return reply(NoStoreError());
                      const auto finish = [store,
                                           &request]() -> absl::StatusOr<v1::FinishDataResponse> {
                        PENSTOCK_RETURN_IF_ERROR(store->Finish(request.sha256()));
                        return v1::FinishDataResponse();
                      };
                      Audited<v1::FinishDataResponse>(audit, action("put", request.sha256()), call,
                                                      finish, reply);
                    });
  server.UnaryAsync(
      service, &Service::RequestRemoveData,
      [=](const v1::RemoveDataRequest& request, const CallInfo& call,
          const Reply<v1::RemoveDataResponse>& reply) {
        if (store == nullptr) return reply(NoStoreError());
        const auto remove = [store, &request]() -> absl::StatusOr<v1::RemoveDataResponse> {
          v1::RemoveDataResponse response;
          PENSTOCK_ASSIGN_OR_RETURN(const bool removed, store->Remove(request.sha256()));
          response.set_removed(removed);
          return response;
        };
        Audited<v1::RemoveDataResponse>(audit, action("remove", request.sha256()), call, remove,
                                        reply);
      });
}

}  // namespace

void AddDataService(RpcServer& server, DigestStore* store, const Auditor& audit) {
  Service& service = server.AddService<Service>(Callers::kData);
  server.Unary(service, &Service::RequestFindData,
               [store](const v1::FindDataRequest& request,
                       const CallInfo&) -> absl::StatusOr<v1::FindDataResponse> {
                 if (store == nullptr) return NoStoreError();
                 return Find(*store, request.sha256());
               });
  server.Unary(service, &Service::RequestWriteData,
               [store](const v1::WriteDataRequest& request,
                       const CallInfo&) -> absl::StatusOr<v1::WriteDataResponse> {
                 if (store == nullptr) return NoStoreError();
                 return Write(*store, request);
               });
  server.Unary(service, &Service::RequestReadData,
               [store](const v1::ReadDataRequest& request,
                       const CallInfo&) -> absl::StatusOr<v1::ReadDataResponse> {
                 if (store == nullptr) return NoStoreError();
                 return Read(*store, request);
               });
  server.Unary(service, &Service::RequestListData,
               [store](const v1::ListDataRequest& request,
                       const CallInfo&) -> absl::StatusOr<v1::ListDataResponse> {
                 if (store == nullptr) return NoStoreError();
                 return List(*store, request.after_sha256());
               });
  AddAudited(server, service, store, audit);
}

}  // namespace penstock
