#include "studies/command/study_output.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/status.h"
#include "services/cli/drawings.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "studies/theory/line_chart.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

std::string CellText(const StudyCell& cell) {
  if (const auto* number = std::get_if<int64_t>(&cell)) return absl::StrCat(*number);
  if (const auto* number = std::get_if<double>(&cell)) return FormatDigits(*number, 4);
  return std::get<std::string>(cell);
}

// Enough digits to read the same number again.
std::string CellCsv(const StudyCell& cell) {
  if (const auto* number = std::get_if<double>(&cell)) return absl::StrFormat("%.17g", *number);
  std::string text = CellText(cell);
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

Json CellJson(const StudyCell& cell) {
  if (const auto* number = std::get_if<int64_t>(&cell)) return *number;
  if (const auto* number = std::get_if<double>(&cell)) {
    return std::isfinite(*number) ? Json(*number) : Json();
  }
  const std::string& text = std::get<std::string>(cell);
  return text == "-" ? Json() : Json(text);
}

}  // namespace

std::string StudyHead(const StudyResult& result) {
  const auto print = [](std::string* out, const std::pair<std::string, StudyCell>& setting) {
    absl::StrAppend(out, absl::StrReplaceAll(setting.first, {{"_", " "}}), " ",
                    CellText(setting.second));
  };
  return absl::StrCat(result.title, "\n", absl::StrJoin(result.settings, ", ", print),
                      result.settings.empty() ? "" : "\n");
}

std::string StudyText(const StudyResult& result) {
  std::string text = StudyHead(result);
  std::vector<Table::Column> columns;
  for (size_t i = 0; i < result.table.columns.size(); ++i) {
    const bool is_text = !result.table.rows.empty() &&
                         std::holds_alternative<std::string>(result.table.rows[0][i]) &&
                         std::get<std::string>(result.table.rows[0][i]) != "-";
    columns.push_back(
        {absl::AsciiStrToUpper(absl::StrReplaceAll(result.table.columns[i], {{"_", " "}})),
         is_text ? Table::Align::kLeft : Table::Align::kRight});
  }
  Table table(std::move(columns));
  for (const std::vector<StudyCell>& row : result.table.rows) {
    std::vector<std::string> cells;
    cells.reserve(row.size());
    for (const StudyCell& cell : row) cells.push_back(CellText(cell));
    table.AddRow(std::move(cells));
  }
  absl::StrAppend(&text, "\n", table.Render(), "\n");
  for (const Finding& finding : result.findings) {
    absl::StrAppend(&text, finding.agrees ? "agrees   " : "DIFFERS  ", finding.claim, "\n",
                    "         ", finding.evidence, "\n");
  }
  return text;
}

Json StudyJson(const std::string& study, const StudyResult& result, double seconds,
               const std::vector<std::string>& files) {
  Json settings = Json::object();
  for (const auto& [key, value] : result.settings) settings[key] = CellJson(value);
  Json rows = Json::array();
  for (const std::vector<StudyCell>& row : result.table.rows) {
    Json object = Json::object();
    for (size_t i = 0; i < row.size(); ++i) object[result.table.columns[i]] = CellJson(row[i]);
    rows.push_back(std::move(object));
  }
  Json findings = Json::array();
  for (const Finding& finding : result.findings) {
    findings.push_back(
        {{"claim", finding.claim}, {"agrees", finding.agrees}, {"evidence", finding.evidence}});
  }
  return {{"study", study}, {"title", result.title}, {"seconds", seconds}, {"settings", settings},
          {"rows", rows},   {"findings", findings},  {"files", files}};
}

std::string TableCsv(const StudyTable& table) {
  std::string csv = absl::StrCat(absl::StrJoin(table.columns, ","), "\n");
  for (const std::vector<StudyCell>& row : table.rows) {
    const auto print = [](std::string* out, const StudyCell& cell) {
      absl::StrAppend(out, CellCsv(cell));
    };
    absl::StrAppend(&csv, absl::StrJoin(row, ",", print), "\n");
  }
  return csv;
}

std::string CurvesCsv(const std::vector<StudyChart>& charts) {
  StudyTable table{.columns = {"chart", "line", "x", "mean", "least", "greatest"}};
  for (const StudyChart& chart : charts) {
    for (const ChartLine& line : chart.chart.lines) {
      for (const ChartPoint& point : line.points) {
        table.rows.push_back({chart.name, line.label, point.x, point.y, point.low, point.high});
      }
    }
  }
  return TableCsv(table);
}

absl::StatusOr<std::vector<std::string>> WriteStudyFiles(const std::string& directory,
                                                         const std::string& study,
                                                         const StudyResult& result) {
  PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(directory));
  std::vector<std::string> paths;
  const auto write = [&](const std::string& name, const std::string& text) {
    paths.push_back(JoinPath(directory, name));
    return WriteTextFile(paths.back(), text);
  };
  PENSTOCK_RETURN_IF_ERROR(write(absl::StrCat(study, ".csv"), TableCsv(result.table)));
  PENSTOCK_RETURN_IF_ERROR(write(absl::StrCat(study, "-curves.csv"), CurvesCsv(result.charts)));
  for (const StudyChart& chart : result.charts) {
    const std::string suffix = chart.name.empty() ? "" : absl::StrCat("-", chart.name);
    PENSTOCK_RETURN_IF_ERROR(
        write(absl::StrCat(study, suffix, ".svg"), RenderLineChart(chart.chart)));
  }
  return paths;
}

absl::Status ShowStudy(const StudyShow& show, const StudyResult& result, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                            WriteStudyFiles(show.directory, show.study, result));
  if (show.json) {
    PrintJson(StudyJson(show.study, result, show.seconds, files), console);
  } else {
    console.out << show.text;
  }
  console.err << "wrote " << absl::StrJoin(files, ", ") << " in " << FormatDuration(show.seconds)
              << "\n";
  return absl::OkStatus();
}

}  // namespace penstock
