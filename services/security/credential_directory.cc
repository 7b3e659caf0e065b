#include "services/security/credential_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "services/security/secret_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFileBytesMax = 1 << 20;
constexpr char kAuthorities[] = "ca.crt";
constexpr char kCertificate[] = "tls.crt";
constexpr char kKey[] = "tls.key";
constexpr char kCurrent[] = "..data";
constexpr char kGenerationPrefix[] = "..generation.";

absl::Status SystemError(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

absl::Status ReplaceLink(const std::string& target, const std::string& path) {
  const std::string fresh = absl::StrCat(path, ".new");
  unlink(fresh.c_str());  // of a writer that was interrupted
  if (symlink(target.c_str(), fresh.c_str()) != 0 || rename(fresh.c_str(), path.c_str()) != 0) {
    return SystemError(path);
  }
  return absl::OkStatus();
}

// Generations but for the two newest, `current` and the one before it, which a program may be
// reading.
void RemoveOldGenerations(const std::string& directory, const std::string& current,
                          const std::string& previous) {
  std::error_code ignored;  // what stays does no harm
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, kGenerationPrefix) && name != current && name != previous) {
      fs::remove_all(entry.path(), ignored);
    }
  }
}

}  // namespace

CredentialPaths CredentialPathsIn(const std::string& directory) {
  return {JoinPath(directory, kAuthorities), JoinPath(directory, kCertificate),
          JoinPath(directory, kKey)};
}

absl::StatusOr<Credentials> ReadCredentials(const std::string& directory) {
  const CredentialPaths paths = CredentialPathsIn(directory);
  Credentials credentials;
  for (const auto& [path, text] : {std::pair(&paths.authorities, &credentials.authorities),
                                   std::pair(&paths.certificate, &credentials.own.certificate),
                                   std::pair(&paths.key, &credentials.own.key)}) {
    absl::StatusOr<std::string> read = RealFiles().Read(*path, kFileBytesMax);
    if (absl::IsNotFound(read.status())) {
      return absl::NotFoundError(
          absl::StrCat(read.status().message(), "; a directory of certificates has ", kAuthorities,
                       ", ", kCertificate, " and ", kKey, ": `penstock certs init` makes them"));
    }
    PENSTOCK_RETURN_IF_ERROR(read.status());
    *text = *std::move(read);
  }
  return credentials;
}

absl::StatusOr<CertificateFacts> CheckCredentials(const std::string& directory, absl::Time now) {
  PENSTOCK_ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(directory));
  absl::StatusOr<CertificateFacts> facts =
      CheckCertificate(credentials.own, credentials.authorities, now);
  if (!facts.ok()) return Annotate(facts.status(), absl::StrCat("certificates in ", directory));
  return facts;
}

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& directory) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::string pem,
      RealFiles().Read(CredentialPathsIn(directory).certificate, kFileBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(const auto certificates, ParseCertificates(pem));
  PENSTOCK_ASSIGN_OR_RETURN(const CertificateFacts facts, FactsOf(*certificates.front()));
  return facts.not_after;
}

std::optional<std::string> KeyWarning(const std::string& directory) {
  const std::string path = CredentialPathsIn(directory).key;
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || (info.st_mode & (S_IROTH | S_IWOTH)) == 0) {
    return std::nullopt;
  }
  return absl::StrCat("every user of this machine may read or change ", path,
                      ", the key by which this program is known: chmod 600 ", path);
}

absl::Status WriteCredentials(const std::string& directory, const Credentials& credentials) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return absl::ErrnoToStatus(error.value(), directory);
  std::string generation = JoinPath(directory, absl::StrCat(kGenerationPrefix, "XXXXXX"));
  if (mkdtemp(generation.data()) == nullptr) return SystemError(generation);
  // The key's own mode keeps it from others; the certificate is no secret.
  if (chmod(generation.c_str(), 0755) != 0) return SystemError(generation);
  PENSTOCK_RETURN_IF_ERROR(
      WriteNewFile(JoinPath(generation, kAuthorities), credentials.authorities, 0644));
  PENSTOCK_RETURN_IF_ERROR(
      WriteNewFile(JoinPath(generation, kCertificate), credentials.own.certificate, 0644));
  PENSTOCK_RETURN_IF_ERROR(WriteNewFile(JoinPath(generation, kKey), credentials.own.key, 0600));

  const std::string current = JoinPath(directory, kCurrent);
  const std::string previous = fs::read_symlink(current, error);  // empty at the first time
  const std::string name = fs::path(generation).filename();
  PENSTOCK_RETURN_IF_ERROR(ReplaceLink(name, current));
  for (const char* file : {kAuthorities, kCertificate, kKey}) {
    const std::string link = JoinPath(directory, file);
    const std::string target = absl::StrCat(kCurrent, "/", file);
    if (fs::read_symlink(link, error) != target) {
      PENSTOCK_RETURN_IF_ERROR(ReplaceLink(target, link));
    }
  }
  RemoveOldGenerations(directory, name, previous);
  return RealFiles().SyncDirectory(directory);
}

}  // namespace penstock
