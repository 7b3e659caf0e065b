#include "job/profile/cluster_spec.h"

#include <gmock/gmock.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSpec[] = R"(hosts:
  - name: rack
    count: 2
    gigabits: 10
    inside_gigabits: 96
    workers: [{count: 4, memory_gib: 16}]
  - name: attic
    gigabits: 1
    workers:
      - {speed: 0.5}
      - {}
paths:
  - {hosts: [rack-1, attic], gigabits: 0.3}
)";

absl::StatusOr<v1::ClusterSpec> With(const std::string& what, const std::string& by) {
  std::string text = kSpec;
  text.replace(text.find(what), what.size(), by);
  return ParseClusterSpec(text, "net.yaml");
}

TEST(ClusterSpec, GoodFile_IsRead) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ClusterSpec spec, ParseClusterSpec(kSpec, "net.yaml"));
  EXPECT_THAT(HostNamesOf(spec.hosts(0)), ElementsAre("rack-0", "rack-1"));
  EXPECT_THAT(HostNamesOf(spec.hosts(1)), ElementsAre("attic"));
  EXPECT_EQ(spec.hosts(1).workers_size(), 2);
}

TEST(ClusterSpec, OneHost_NeedsNoNetworkCard) {
  EXPECT_THAT(ParseClusterSpec("hosts: [{name: box, workers: [{count: 2}]}]", "net.yaml"), IsOk());
}

TEST(ClusterSpec, Mistakes_AreNamedWithTheirPlace) {
  const auto expect = [](const std::string& what, const std::string& by, const std::string& error) {
    EXPECT_THAT(With(what, by), StatusIs(kInvalid, HasSubstr(error)));
  };
  expect("gigabits: 10\n", "gigabits: 0\n",
         "net.yaml:4:5: hosts[0].gigabits: is 0; expected a number above 0");
  expect("gigabits: 10\n", "gigabits: .nan\n", "hosts[0].gigabits: expected a number, got .nan");
  expect("    gigabits: 10\n", "", "hosts[0].gigabits: is missing");
  expect("inside_gigabits: 96", "inside_gigabits: .inf",
         "hosts[0].inside_gigabits: expected a number, got .inf");
  expect("count: 2", "count: 0", "hosts[0].count: is 0; expected 1 to 4096");
  expect("count: 4,", "count: 4000,", "hosts: have 8000 workers or more; expected 4096 at most");
  expect("memory_gib: 16", "memory_gib: -1", "hosts[0].workers[0].memory_gib: is -1");
  expect("memory_gib: 16", "offload_gigabits: 0", "hosts[0].workers[0].offload_gigabits: is 0");
  expect("speed: 0.5", "speed: -0.5", "hosts[1].workers[0].speed: is -0.5");
  expect("name: attic", "name: rack-0", "hosts[1].name: rack-0 is there twice");
  expect("- name: attic\n    gigabits", "- gigabits", "hosts[1].name: is missing");
  expect("workers: [{count: 4, memory_gib: 16}]", "workers: []", "hosts[0].workers: has none");
  expect("[rack-1, attic]", "[rack-1, cellar]",
         "paths[0].hosts: names cellar; the hosts are attic, rack-0, rack-1");
  expect("[rack-1, attic]", "[rack-1]", "expected the names of two hosts");
  expect("gigabits: 0.3", "gigabits: 0", "paths[0].gigabits: is 0");
  expect("- {hosts: [rack-1, attic], gigabits: 0.3}",
         "- {hosts: [rack-1, attic], gigabits: 1}\n  - {hosts: [attic, rack-1], gigabits: 2}",
         "paths[1].hosts: attic and rack-1 are joined by another path too");
  expect("gigabits: 0.3}", "gigabits: 0.3, latency_us: -1}", "paths[0].latency_us: is -1");
  expect("    inside_gigabits: 96\n", "    latency_us: 1e9\n",
         "hosts[0].latency_us: is 1e+09; expected 0 to 1e+07");
  expect("speed: 0.5", "sped: 0.5", "did you mean");
  EXPECT_THAT(ParseClusterSpec("half_duplex: true", "net.yaml"),
              StatusIs(kInvalid, HasSubstr("hosts: has none")));
}

}  // namespace
}  // namespace penstock
