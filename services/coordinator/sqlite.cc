#include "services/coordinator/sqlite.h"

#include <sqlite3.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status SqliteError(const std::string& path, sqlite3* database, int code) {
  const int primary = code & 0xFF;
  // Only of these SQLite keeps the system's own reason, of the last call that failed.
  const bool is_of_system = primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN;
  const int error = is_of_system && database != nullptr ? sqlite3_system_errno(database) : 0;
  const std::string message = absl::StrCat(
      path, ": ", database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code),
      error == 0 ? "" : absl::StrCat(" (", std::generic_category().message(error), ")"));
  switch (primary) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat(message, "; does another coordinator use this file?"));
    case SQLITE_CANTOPEN:
      return absl::NotFoundError(absl::StrCat(message, "; does its directory exist?"));
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::PermissionDeniedError(message);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(
          message, "; the file is damaged: restore a backup of it, or use another one"));
    default:
      return absl::InternalError(message);
  }
}

}  // namespace

void SqliteStatement::Finalizer::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void SqliteDatabase::Closer::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

SqliteStatement& SqliteStatement::BindInt(int parameter, int64_t value) {
  sqlite3_bind_int64(statement_.get(), parameter, value);
  return *this;
}

SqliteStatement& SqliteStatement::BindText(int parameter, absl::string_view value) {
  sqlite3_bind_text64(statement_.get(), parameter, value.data(), value.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(int parameter, absl::string_view value) {
  // A null pointer would bind NULL, which is not an empty blob.
  sqlite3_bind_blob64(statement_.get(), parameter, value.empty() ? "" : value.data(), value.size(),
                      SQLITE_TRANSIENT);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) {
    return true;
  }
  const absl::Status status = code == SQLITE_DONE
                                  ? absl::OkStatus()
                                  : SqliteError(path_, sqlite3_db_handle(statement_.get()), code);
  sqlite3_reset(statement_.get());
  if (!status.ok()) {
    return status;
  }
  return false;
}

absl::Status SqliteStatement::Run() { return Step().status(); }

void SqliteStatement::Reset() { sqlite3_reset(statement_.get()); }

int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string SqliteStatement::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? "" : std::string(static_cast<const char*>(bytes), size);
}

bool SqliteStatement::IsNull(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

absl::StatusOr<SqliteDatabase> SqliteDatabase::Open(const std::string& path) {
  sqlite3* opened = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &opened,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  SqliteDatabase database(path, opened);
  if (code != SQLITE_OK) {
    return SqliteError(path, opened, code);
  }
  sqlite3_extended_result_codes(opened, 1);
  return database;
}

absl::Status SqliteDatabase::Execute(const std::string& sql) {
  const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : SqliteError(path_, database_.get(), code);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const std::string& sql) {
  sqlite3_stmt* prepared = nullptr;
  const int code = sqlite3_prepare_v3(database_.get(), sql.c_str(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
  if (code != SQLITE_OK) {
    return SqliteError(path_, database_.get(), code);
  }
  return SqliteStatement(path_, prepared);
}

absl::StatusOr<int64_t> SqliteDatabase::QueryInt(const std::string& sql) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query, Prepare(sql));
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  return row ? query.Int(0) : 0;
}

absl::StatusOr<std::string> SqliteDatabase::QueryText(const std::string& sql) {
  PENSTOCK_ASSIGN_OR_RETURN(SqliteStatement query, Prepare(sql));
  PENSTOCK_ASSIGN_OR_RETURN(const bool row, query.Step());
  return row ? query.Bytes(0) : "";
}

}  // namespace penstock
