#include "services/cli/data_client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/crc32c.h"
#include "base/file_tree.h"
#include "base/files.h"
#include "base/leader_note.h"
#include "base/put_path.h"
#include "base/sha256.h"
#include "base/status.h"
#include "data/put_listing.h"
#include "services/cli/put_directory.h"
#include "services/rpc/channel.h"
#include "services/rpc/data_patience.h"
#include "services/rpc/limits.h"

namespace penstock {
namespace {

using Stub = v1::DataService::Stub;

// For the coordinator to compare a whole file with its digest, at this speed or more.
constexpr double kHashedBytesPerSecond = 20e6;

absl::StatusOr<std::string> ReadPart(int file, const std::string& path, int64_t offset,
                                     int64_t bytes_max) {
  std::string bytes(static_cast<size_t>(bytes_max), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size =
        pread(file, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return FileError("read", path, errno);
    if (size == 0) {
      return absl::AbortedError(
          absl::StrCat(path, " became shorter while it was sent; put it again"));
    }
    done += static_cast<size_t>(size);
  }
  return bytes;
}

absl::StatusOr<std::string> DigestOf(int file, const std::string& path, int64_t size_bytes,
                                     const DataClient::Progress& progress) {
  Sha256 sha256;
  for (int64_t offset = 0; offset < size_bytes;) {
    PENSTOCK_RETURN_IF_ERROR(progress(offset, size_bytes, absl::StrCat("its digest, ", path)));
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::string bytes,
        ReadPart(file, path, offset,
                 std::min<int64_t>(rpc_limits::kDataPartBytesMax, size_bytes - offset)));
    sha256.Update(bytes);
    offset += static_cast<int64_t>(bytes.size());
  }
  return sha256.HexDigest();
}

absl::StatusOr<int64_t> SizeOf(int file, const std::string& path) {
  struct stat status = {};
  if (fstat(file, &status) != 0) return FileError("look at", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is neither a file nor a directory; put what is one"));
  }
  if (status.st_size == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return status.st_size;
}

}  // namespace

absl::StatusOr<DataClient> DataClient::Connect(const CoordinatorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient coordinator, CoordinatorClient::Connect(options));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<HostPort> addresses, ParseHostPorts(options.address));
  PENSTOCK_ASSIGN_OR_RETURN(const TransportSecurity security,
                            MakeTransportSecurity(options.security, addresses, absl::Now()));
  const auto dial = [&security](const std::string& address) {
    return MakeControlChannel(address, security.ForChannel(Role::kCoordinator));
  };
  return DataClient(std::move(coordinator),
                    std::make_unique<LeaderStub<v1::DataService>>(addresses, dial));
}

absl::Status DataClient::Explain(const absl::Status& status) {
  if (!absl::IsUnavailable(status) || LeaderOf(status).has_value()) return status;
  const absl::Status reached = coordinator_.ListWorkers().status();
  return reached.ok() ? status : reached;
}

absl::Status DataClient::SendParts(const Content& content, const std::string& sha256,
                                   const Progress& progress, PutFile& put) {
  DataPatience patience;
  int64_t held = -1;       // unknown: ask
  int64_t sent_up_to = 0;  // bytes below it were sent before
  v1::FindDataRequest find;
  find.set_sha256(sha256);
  v1::WriteDataRequest write;
  write.set_sha256(sha256);
  write.set_size_bytes(content.size_bytes);
  for (bool first = true; held < content.size_bytes;) {
    absl::Status status;
    if (held < 0) {
      const auto found = stub_->Call(&Stub::FindData, find, rpc_limits::kQuickCallTimeout);
      status = found.status();
      if (found.ok()) held = found->held_bytes();
      if (found.ok() && std::exchange(first, false)) {
        put.bytes_held_before += held;
        sent_up_to = held;
      }
    } else {
      PENSTOCK_RETURN_IF_ERROR(progress(held, content.size_bytes, content.name));
      PENSTOCK_ASSIGN_OR_RETURN(*write.mutable_bytes(),
                                content.read(held, std::min<int64_t>(rpc_limits::kDataPartBytesMax,
                                                                     content.size_bytes - held)));
      const auto size = static_cast<int64_t>(write.bytes().size());
      write.set_offset(held);
      write.set_crc32c(Crc32c(write.bytes().data(), write.bytes().size()));
      put.bytes_sent += size;
      put.bytes_sent_again += std::clamp<int64_t>(sent_up_to - held, 0, size);
      sent_up_to = std::max(sent_up_to, held + size);
      const auto written = stub_->Call(&Stub::WriteData, write, rpc_limits::kDataPartTimeout);
      status = written.status();
      held = written.ok() ? written->held_bytes() : -1;
      if (written.ok()) patience.OnProgress();
    }
    if (status.ok()) continue;
    ++put.breaks;
    PENSTOCK_RETURN_IF_ERROR(progress(sent_up_to, content.size_bytes, "waits for the coordinator"));
    if (!patience.MayAskAgain(status)) return Explain(status);
  }
  return absl::OkStatus();
}

absl::Status DataClient::PutContent(const Content& content, const std::string& sha256,
                                    const Progress& progress, PutFile& put) {
  v1::FinishDataRequest finish;
  finish.set_sha256(sha256);
  const absl::Duration hashing =
      absl::Seconds(static_cast<double>(content.size_bytes) / kHashedBytesPerSecond);
  put.size_bytes += content.size_bytes;
  // The coordinator may have lost the last parts with its machine.
  for (DataPatience patience;;) {
    PENSTOCK_RETURN_IF_ERROR(SendParts(content, sha256, progress, put));
    PENSTOCK_RETURN_IF_ERROR(
        progress(content.size_bytes, content.size_bytes, "is compared with its digest"));
    const absl::Status finished =
        stub_->Call(&Stub::FinishData, finish, rpc_limits::kDataPartTimeout + hashing).status();
    if (finished.ok()) return absl::OkStatus();
    ++put.breaks;
    // A damaged part is an error of SendParts, so this one is for good.
    if (absl::IsDataLoss(finished)) return Annotate(finished, content.name);
    if (!patience.MayAskAgain(finished)) return Explain(finished);
  }
}

absl::StatusOr<PutFile> DataClient::PutOneFile(const std::string& path, const std::string& sha256,
                                               const Progress& progress) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.ok()) return FileError("open", path, errno);
  Content content = {.name = path, .read = [&](int64_t offset, int64_t bytes_max) {
                       return ReadPart(file.get(), path, offset, bytes_max);
                     }};
  PENSTOCK_ASSIGN_OR_RETURN(content.size_bytes, SizeOf(file.get(), path));
  PutFile put = {.sha256 = sha256};
  if (sha256.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(put.sha256, DigestOf(file.get(), path, content.size_bytes, progress));
  }
  PENSTOCK_RETURN_IF_ERROR(PutContent(content, put.sha256, progress, put));
  put.path = PutPath{put.sha256}.ToString();
  return put;
}

absl::StatusOr<PutFile> DataClient::PutFiles(const std::string& directory,
                                             const std::vector<std::string>& names,
                                             const Progress& progress) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesOf(directory, names));
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  int64_t before = 0;
  // The bar is that of the directory.
  const Progress of_all = [&](int64_t done, int64_t, const std::string& what) {
    return progress(before + done, all, what);
  };
  PutFile put = {.files = 0};
  PutListing listing;
  for (size_t i = 0; i < names.size(); ++i) {
    PutFile file = {.sha256 = Sha256Hex("")};
    if (sizes[i] > 0) {  // there is nothing to send of an empty one
      PENSTOCK_ASSIGN_OR_RETURN(file, PutOneFile(JoinPath(directory, names[i]), "", of_all));
    }
    listing.files.push_back({names[i], file.size_bytes, file.sha256});
    put.size_bytes += file.size_bytes;
    put.bytes_held_before += file.bytes_held_before;
    put.bytes_sent += file.bytes_sent;
    put.bytes_sent_again += file.bytes_sent_again;
    put.breaks += file.breaks;
    ++put.files;
    before += sizes[i];
  }
  const std::string text = PrintPutListing(listing);
  PutFile list = {.sha256 = Sha256Hex(text)};
  const Content content = {.name = absl::StrCat("the list of ", directory),
                           .size_bytes = static_cast<int64_t>(text.size()),
                           .read = [&](int64_t offset, int64_t bytes_max) {
                             return text.substr(static_cast<size_t>(offset),
                                                static_cast<size_t>(bytes_max));
                           }};
  const auto quiet = [&](int64_t, int64_t, const std::string& what) {
    return progress(all, all, what);
  };
  PENSTOCK_RETURN_IF_ERROR(PutContent(content, list.sha256, quiet, list));
  put.bytes_sent += list.bytes_sent;
  put.bytes_sent_again += list.bytes_sent_again;
  put.bytes_held_before += list.bytes_held_before;
  put.breaks += list.breaks;
  put.sha256 = list.sha256;
  put.path = PutPath{list.sha256, true}.ToString();
  return put;
}

absl::StatusOr<PutFile> DataClient::Put(const std::string& path, const std::string& sha256,
                                        const Progress& progress) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    if (!sha256.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sha256 is the digest of a file, and ", path, " is a directory"));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, FilesToPut(path));
    return PutFiles(path, names, progress);
  }
  const bool is_named = absl::EndsWith(path, ".json") || absl::EndsWith(path, ".model");
  if (!is_named || !sha256.empty()) return PutOneFile(path, sha256, progress);
  const std::filesystem::path place(path);
  const std::string name = place.filename().string();
  PENSTOCK_ASSIGN_OR_RETURN(PutFile put, PutFiles(place.parent_path().string(), {name}, progress));
  put.path += name;
  return put;
}

absl::StatusOr<std::vector<v1::StoredData>> DataClient::List() {
  std::vector<v1::StoredData> files;
  v1::ListDataRequest request;
  for (;;) {
    const auto response = stub_->Call(&Stub::ListData, request, kClientCallTimeout);
    if (!response.ok()) return Explain(response.status());
    if (response->files().empty()) return files;
    files.insert(files.end(), response->files().begin(), response->files().end());
    request.set_after_sha256(files.back().sha256());
  }
}

absl::StatusOr<bool> DataClient::Remove(const std::string& sha256) {
  v1::RemoveDataRequest request;
  request.set_sha256(sha256);
  const auto response = stub_->Call(&Stub::RemoveData, request, kClientCallTimeout);
  if (!response.ok()) return Explain(response.status());
  return response->removed();
}

}  // namespace penstock
