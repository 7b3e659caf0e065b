// DataClient: puts files to a coordinator part by part (data.proto), and goes on after breaks of the link, of this program or of
// the coordinator where the coordinator's disk ends.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/data.grpc.pb.h"
#include "services/cli/coordinator_client.h"
#include "services/rpc/leader_stub.h"

namespace penstock {

// How a file, or a directory, came to be on the coordinator.
struct PutFile {
  std::string sha256;  // of the file, or of the list of the directory's
  std::string path;    // as a job names it
  int64_t files = 1;
  int64_t size_bytes = 0;
  int64_t bytes_held_before = 0;
  int64_t bytes_sent = 0;        // the content of all parts, those that were lost too
  int64_t bytes_sent_again = 0;  // of them those that had been sent before
  int64_t breaks = 0;            // calls that were not answered, or refused for the moment
};

class DataClient {
 public:
  // Told of bytes that are on the coordinator's disk; an error ends the work with it.
  using Progress = std::function<absl::Status(int64_t done, int64_t all, const std::string& what)>;

  // Errors: as CoordinatorClient::Connect.
  static absl::StatusOr<DataClient> Connect(const CoordinatorOptions& options);

  // Puts the file or the directory at `path` (services/cli/put_directory.h): of a directory each file, and then the list of them. A file whose name says what
  // it is, a tokenizer.json or a .model, is put as a directory that has it alone. `sha256`: the digest of a file; empty: it is computed first, which reads it as a whole.
  // Errors: NotFound, InvalidArgument (no file, empty, a digest for a directory), Aborted (it changed meanwhile), DataLoss (it has
  // another digest), Unavailable and DeadlineExceeded (no part was taken for kDataPatience), those of FilesToPut, of DataService and of `progress`.
  absl::StatusOr<PutFile> Put(const std::string& path, const std::string& sha256,
                              const Progress& progress);
  // All files that are there, by digest.
  absl::StatusOr<std::vector<v1::StoredData>> List();
  // Returns whether there was one.
  absl::StatusOr<bool> Remove(const std::string& sha256);

 private:
  DataClient(CoordinatorClient coordinator, std::unique_ptr<LeaderStub<v1::DataService>> stub)
      : coordinator_(std::move(coordinator)), stub_(std::move(stub)) {}

  // What is sent, part by part.
  struct Content {
    std::string name;  // for messages
    int64_t size_bytes = 0;
    std::function<absl::StatusOr<std::string>(int64_t offset, int64_t bytes_max)> read;
  };
  // Puts a content of this digest, of which `put` counts what is sent.
  absl::Status PutContent(const Content& content, const std::string& sha256,
                          const Progress& progress, PutFile& put);
  absl::StatusOr<PutFile> PutOneFile(const std::string& path, const std::string& sha256,
                                     const Progress& progress);
  absl::StatusOr<PutFile> PutFiles(const std::string& directory,
                                   const std::vector<std::string>& names, const Progress& progress);
  // The parts of a content, from where the coordinator's disk ends.
  absl::Status SendParts(const Content& content, const std::string& sha256,
                         const Progress& progress, PutFile& put);
  // Adds why nothing answers, and what to do.
  absl::Status Explain(const absl::Status& status);

  CoordinatorClient coordinator_;
  std::unique_ptr<LeaderStub<v1::DataService>> stub_;
};

}  // namespace penstock
