#include "services/cli/table.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte
  }));
}

void AppendRow(const std::vector<std::string>& cells, const std::vector<Table::Column>& columns,
               const std::vector<size_t>& widths, std::string& out) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - Width(cells[i]), ' ');
    if (i > 0) line += "  ";
    line += columns[i].align == Table::Align::kRight ? padding + cells[i] : cells[i] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  PENSTOCK_CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    widths.push_back(Width(columns_[i].title));
    for (const std::vector<std::string>& row : rows_) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string out;
  AppendRow(titles, columns_, widths, out);
  for (const std::vector<std::string>& row : rows_) AppendRow(row, columns_, widths, out);
  return out;
}

}  // namespace penstock
