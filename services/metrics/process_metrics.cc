#include "services/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "services/metrics/metric_rows.h"
#include "services/security/credential_directory.h"

namespace penstock {
namespace {

using enum MetricKind;

struct Program {
  const std::string& name;
  const std::string& version;
};

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

std::optional<double> CpuSeconds() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// proc(5): the second number of statm is the resident set in pages.
std::optional<double> ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  if (!(file >> pages >> resident)) return std::nullopt;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
}

std::optional<double> OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return std::nullopt;
  int64_t count = -1;  // the directory itself is open while it is read
  for (; files != std::filesystem::directory_iterator(); files.increment(error)) {
    if (error) return std::nullopt;
    ++count;
  }
  return static_cast<double>(count);
}

// proc(5): field 22 of stat, in ticks since the machine started; the second field is a name in
// parentheses, which may hold anything.
std::optional<double> StartTime() {
  std::ifstream stat("/proc/self/stat");
  std::stringstream text;
  text << stat.rdbuf();
  const std::string line = text.str();
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    if (!(fields >> field)) return std::nullopt;
  }
  std::ifstream machine("/proc/stat");
  for (std::string word; machine >> word;) {
    int64_t boot = 0;
    if (word == "btime" && machine >> boot) {
      return static_cast<double>(boot) +
             std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
  }
  return std::nullopt;
}

// The value if the system tells it.
template <std::optional<double> (*Measure)()>
void Measured(const Program& /*program*/, MetricSamples& samples) {
  if (const std::optional<double> value = Measure()) samples.Add(*value);
}

const std::vector<MetricRow<RejectionCounts>>& RowsOfRejections() {
  static const auto& rows = *new std::vector<MetricRow<RejectionCounts>>{
      {kCounter, "penstock_rejected_messages_total", "reason",
       "Messages of others that were refused, by reason: frames of tensor streams, calls, reports "
       "and requests over HTTP.",
       [](const RejectionCounts& counts, MetricSamples& samples) {
         for (int reason = 0; reason < kRejections; ++reason) {
           samples.Add({NameOf(static_cast<Rejection>(reason))}, counts[reason]);
         }
       }},
  };
  return rows;
}

const std::vector<MetricRow<absl::Time>>& RowsOfCertificates() {
  static const auto& rows = *new std::vector<MetricRow<absl::Time>>{
      {kGauge, "penstock_certificate_expiry_timestamp_seconds", "",
       "Until when the program's certificate is good, in seconds since 1970. Not without "
       "certificates.",
       [](const absl::Time& expiry, MetricSamples& samples) {
         samples.Add(absl::ToDoubleSeconds(expiry - absl::UnixEpoch()));
       }},
  };
  return rows;
}

const std::vector<MetricRow<Program>>& RowsOfProcesses() {
  static const auto& rows = *new std::vector<MetricRow<Program>>{
      {kGauge, "penstock_build_info", "program version",
       "1; the program and its version are labels.",
       [](const Program& program, MetricSamples& samples) {
         samples.Add({program.name, program.version}, 1);
       }},
      {kCounter, "process_cpu_seconds_total", "",
       "CPU time of the process, in user and system mode.", Measured<CpuSeconds>},
      {kGauge, "process_resident_memory_bytes", "", "Memory of the process that is resident.",
       Measured<ResidentBytes>},
      {kGauge, "process_open_fds", "", "Open file descriptors of the process.",
       Measured<OpenFiles>},
      {kGauge, "process_start_time_seconds", "", "When the process started, in seconds since 1970.",
       Measured<StartTime>},
  };
  return rows;
}

}  // namespace

std::vector<MetricGroup> ProcessMetricGroups() {
  return {{"Every program", "", MetricProgram::kBoth,
           Joined({Describe("", RowsOfRejections()), Describe("", RowsOfCertificates()),
                   Describe("", RowsOfProcesses())})}};
}

void AddProcessMetrics(const std::string& program, const std::string& version, MetricSet& metrics) {
  AddRows(RowsOfProcesses(), Program{.name = program, .version = version}, {}, metrics);
}

void AddCertificateMetrics(const std::string& directory, MetricSet& metrics) {
  const absl::StatusOr<absl::Time> expiry = CertificateExpiry(directory);
  if (expiry.ok()) AddRows(RowsOfCertificates(), *expiry, {}, metrics);
}

void AddRejectedMessages(const RejectionCounts& counts, MetricSet& metrics) {
  AddRows(RowsOfRejections(), counts, {}, metrics);
}

void AddRejectedMessages(const std::vector<const RejectedMessages*>& counts, MetricSet& metrics) {
  RejectionCounts sum = {};
  for (const RejectedMessages* each : counts) each->AddTo(sum);
  AddRejectedMessages(sum, metrics);
}

}  // namespace penstock
