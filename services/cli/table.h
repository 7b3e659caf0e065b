// Table: columns that line up, for terminals and files alike.
//
//   STAGE  WORKER    LAYERS  BUBBLE
//       0  worker-0       6   3.1 %
#pragma once

#include <string>
#include <vector>

namespace penstock {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: as many cells as columns.
  void AddRow(std::vector<std::string> cells);

  // The title row and all rows, each ended by a newline and without trailing blanks. Widths count
  // UTF-8 characters.
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace penstock
