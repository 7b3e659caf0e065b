// Tensor streaming over loopback, in pairs with a raw TCP copy loop.
//
//   transport_benchmark [PAIRS] [MIB]    pairs per row (11), measured MiB per run (1024)
//
// Rows: the tensor stream at 1 and 8 MiB, in plain text, with TLS, and through shared memory with TLS beside it, and a stream of
// protobuf bytes at 1 MiB. A pair is one run of
// the row and one of raw TCP, in alternating order, so that what else the machine does falls on both;
// the row shows the median of the pairs' ratios.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"
#include "services/rpc/grpc_process.h"
#include "services/security/authority_directory.h"
#include "tests/bench/transport/pair.h"

namespace penstock {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kWindowBytes = 8 * kMiB;

// A worker's credentials, of an authority in a temporary directory.
class Credentials {
 public:
  Credentials() {
    authority_ = (std::filesystem::temp_directory_path() / "penstock-bench-XXXXXX").string();
    PENSTOCK_CHECK(mkdtemp(authority_.data()) != nullptr);
    const absl::Time now = absl::Now();
    const auto made = AuthorityDirectory::Make(authority_, "penstock", now);
    PENSTOCK_CHECK(made.ok() && made->Issue(Role::kWorker, "", {}, absl::Hours(24), now).ok());
  }
  ~Credentials() { std::filesystem::remove_all(authority_); }
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;
  std::string directory() const { return authority_ + "/worker"; }

 private:
  std::string authority_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Load MakeLoad(int64_t message_mib, int64_t total_mib) {
  const int64_t messages = std::max<int64_t>(total_mib / message_mib, 1);
  return {.message_bytes = message_mib * kMiB,
          .window = static_cast<int>(std::max<int64_t>(kWindowBytes / (message_mib * kMiB), 2)),
          .warmup_messages = std::max<int64_t>(messages / 8, 2),
          .messages = messages};
}

// Returns the median throughput ratio to raw TCP.
double RunRow(Mover& mover, int64_t message_mib, int pairs, int64_t total_mib) {
  const std::unique_ptr<Mover> raw = MakeRawTcp();
  const Load load = MakeLoad(message_mib, total_mib);
  std::vector<double> gb_per_second, raw_gb_per_second, ratios, cpu, raw_cpu, cpu_ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    Measurement own, other;
    if (pair % 2 == 0) own = Measure(mover, load);
    other = Measure(*raw, load);
    if (pair % 2 == 1) own = Measure(mover, load);
    gb_per_second.push_back(own.bytes_per_second / 1e9);
    raw_gb_per_second.push_back(other.bytes_per_second / 1e9);
    ratios.push_back(own.bytes_per_second / other.bytes_per_second);
    cpu.push_back(own.cpu_seconds_per_gb);
    raw_cpu.push_back(other.cpu_seconds_per_gb);
    cpu_ratios.push_back(own.cpu_seconds_per_gb / other.cpu_seconds_per_gb);
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("%-16s %2lld MiB  %5.2f  %5.2f  %5.2f (%4.2f to %4.2f)  %6.2f  %6.2f  %5.2f\n",
              mover.name(), static_cast<long long>(message_mib), Median(gb_per_second),
              Median(raw_gb_per_second), Median(ratios), *low, *high, Median(cpu), Median(raw_cpu),
              Median(cpu_ratios));
  std::fflush(stdout);
  return Median(ratios);
}

void Main(int pairs, int64_t total_mib) {
  std::printf(
      "%d pairs of runs, %lld MiB each; GB/s, ratio to raw TCP, CPU seconds per GB of both "
      "processes\n\n",
      pairs, static_cast<long long>(total_mib));
  std::printf("%-16s %6s  %5s  %5s  %5s %14s  %6s  %6s  %5s\n", "", "", "GB/s", "raw", "ratio", "",
              "CPU", "raw", "ratio");
  const auto tensors = MakeTensorStream({});
  const double at_1 = RunRow(*tensors, 1, pairs, total_mib);
  RunRow(*tensors, 8, pairs, total_mib);
  const Credentials credentials;
  const auto encrypted = MakeTensorStream({.credentials = credentials.directory()});
  const double tls_at_1 = RunRow(*encrypted, 1, pairs, total_mib);
  RunRow(*encrypted, 8, pairs, total_mib);
  const auto shared = MakeTensorStream({.credentials = credentials.directory(), .shared = true});
  const double shared_at_1 = RunRow(*shared, 1, pairs, total_mib);
  RunRow(*shared, 8, pairs, total_mib);
  const double protobuf = RunRow(*MakeProtobufStream(), 1, pairs, total_mib);
  std::printf("\ntensor stream against protobuf stream at 1 MiB: %.2f\n", at_1 / protobuf);
  std::printf("with TLS against without at 1 MiB: %.2f\n", tls_at_1 / at_1);
  std::printf("shared memory at 1 MiB against the tensor stream without and with TLS: %.2f, %.2f\n",
              shared_at_1 / at_1, shared_at_1 / tls_at_1);
  std::printf("shared memory against the protobuf stream at 1 MiB: %.2f\n", shared_at_1 / protobuf);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 11;
  const int total_mib = argc > 2 ? std::atoi(argv[2]) : 1024;
  if (argc > 3 || pairs < 1 || total_mib < 8) {
    std::fprintf(stderr, "usage: transport_benchmark [PAIRS] [MIB]\n");
    return 2;
  }
  penstock::PrepareProcessForGrpc();
  penstock::Main(pairs, total_mib);
  return 0;
}
