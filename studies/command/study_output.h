// StudyOutput: the result of a study for people and programs.
//
// Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/cli/console.h"
#include "services/cli/json_output.h"
#include "studies/theory/study.h"

namespace penstock {

// Title and settings.
std::string StudyHead(const StudyResult& result);

// Head, table and findings.
std::string StudyText(const StudyResult& result);

// {study, title, seconds, settings, rows: [{...}], findings: [{claim, agrees, evidence}], files}. A value
// that is not finite (a run that diverged) is null.
nlohmann::ordered_json StudyJson(const std::string& study, const StudyResult& result,
                                 double seconds, const std::vector<std::string>& files);

// The table, and the points of all charts, as comma-separated values with a row of headings.
std::string TableCsv(const StudyTable& table);
std::string CurvesCsv(const std::vector<StudyChart>& charts);

// Writes STUDY.csv, STUDY-curves.csv and STUDY.svg (or STUDY-CHART.svg) into `directory`, which is created
// if need be. Returns their paths. Errors: those of the file system, naming the path.
absl::StatusOr<std::vector<std::string>> WriteStudyFiles(const std::string& directory,
                                                         const std::string& study,
                                                         const StudyResult& result);

// How a command shows a study that took `seconds`.
struct StudyShow {
  std::string directory;  // for its files
  std::string study;
  std::string text;   // what people read
  bool json = false;  // StudyJson instead
  double seconds = 0.0;
};
// Writes the files, prints the result, and says on standard error which files there are. Errors: those of WriteStudyFiles.
absl::Status ShowStudy(const StudyShow& show, const StudyResult& result, Console& console);

}  // namespace penstock
