// SQLite with errors as values: a database and its prepared statements.
//
// Thread-compatible: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace penstock {

// A prepared statement, used again and again: bind, step, read; binding starts it over.
class SqliteStatement {
 public:
  // Parameters count from 1, columns from 0. The bytes are copied.
  SqliteStatement& BindInt(int parameter, int64_t value);
  SqliteStatement& BindText(int parameter, absl::string_view value);
  SqliteStatement& BindBlob(int parameter, absl::string_view value);

  // Goes to the next row. Returns whether there is one; after the last the statement starts over.
  absl::StatusOr<bool> Step();
  // Runs a statement without rows.
  absl::Status Run();
  // Starts over before the last row.
  void Reset();

  int64_t Int(int column) const;
  std::string Bytes(int column) const;  // of a text or blob
  bool IsNull(int column) const;

 private:
  friend class SqliteDatabase;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  SqliteStatement(std::string path, sqlite3_stmt* statement)
      : path_(std::move(path)), statement_(statement) {}

  std::string path_;
  std::unique_ptr<sqlite3_stmt, Finalizer> statement_;
};

class SqliteDatabase {
 public:
  // Opens or creates `path`; ":memory:" makes one that lives as long as the object.
  // Errors: PermissionDenied, NotFound (the directory), Internal.
  static absl::StatusOr<SqliteDatabase> Open(const std::string& path);

  // Runs statements without parameters, separated by semicolons.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);
  // Returns the only column of the only row of a query without parameters.
  absl::StatusOr<int64_t> QueryInt(const std::string& sql);
  absl::StatusOr<std::string> QueryText(const std::string& sql);

  const std::string& path() const { return path_; }

 private:
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  SqliteDatabase(std::string path, sqlite3* database)
      : path_(std::move(path)), database_(database) {}

  std::string path_;
  std::unique_ptr<sqlite3, Closer> database_;
};

}  // namespace penstock
