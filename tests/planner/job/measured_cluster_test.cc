#include "planner/job/measured_cluster.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

v1::ModelProfile ModelOf(double ms) {
  v1::ModelProfile model;
  model.set_time_steps(8);
  for (const char* name : {"first", "second"}) {
    v1::ProfiledLayer& layer = *model.add_layers();
    layer.set_layer(name);
    layer.set_shape("shape");
  }
  v1::ShapeProfile& shape = *model.add_shapes();
  shape.set_shape("shape");
  v1::SizeProfile& size = *shape.add_sizes();
  size.set_samples(4);
  size.mutable_forward()->set_ms(ms);
  return model;
}

class MeasuredClusterTest : public ::testing::Test {
 protected:
  void AddDevice(const std::string& name, double ms) {
    v1::DeviceProfile& device = *profile_.add_devices();
    device.set_device(name);
    *device.mutable_model() = ModelOf(ms);
  }
  void AddWorker(const std::string& name, const std::string& device, const std::string& host,
                 int64_t memory_bytes) {
    v1::ProfiledWorker& worker = *profile_.add_workers();
    worker.set_worker(name);
    worker.set_device(device);
    worker.set_host(host);
    worker.set_memory_bytes(memory_bytes);
  }
  // Both ways; the way back is a little faster.
  void AddLink(const std::string& one, const std::string& two, double bytes_per_second,
               double latency_us) {
    const double rates[] = {bytes_per_second, bytes_per_second * 1.05};
    const std::string names[] = {one, two};
    for (const int way : {0, 1}) {
      v1::ProfiledLink& link = *profile_.add_links();
      link.set_from(names[way]);
      link.set_to(names[1 - way]);
      link.set_bytes_per_second(rates[way]);
      link.set_latency_us(latency_us);
    }
  }
  v1::ClusterProfile profile_;
};

TEST_F(MeasuredClusterTest, KindsHostsAndPaths_AreWhatWasMeasured) {
  AddDevice("old", 8.0);
  AddDevice("new", 2.0);
  AddWorker("a0", "old", "a", 1'000);
  AddWorker("a1", "old", "a", 0);
  AddWorker("b0", "new", "b", 2'000);
  profile_.mutable_workers(2)->set_offload_bytes_per_second(3e9);
  AddWorker("c0", "new", "c", 2'000);
  AddLink("a0", "a1", 1e9, 5);
  AddLink("a0", "b0", 1e8, 50);
  AddLink("a1", "b0", 1e8, 60);
  AddLink("a0", "c0", 1e6, 9'000);
  AddLink("a1", "c0", 1e6, 9'000);
  AddLink("b0", "c0", 1e8, 50);
  const MeasuredCluster measured = ClusterOfProfile(profile_);
  EXPECT_THAT(CheckCluster(measured.cluster), IsOk());
  EXPECT_EQ(measured.profile.layers_size(), 2);
  ASSERT_EQ(measured.cluster.workers.size(), 4u);
  EXPECT_EQ(measured.cluster.workers[0].speed, 1.0);
  EXPECT_EQ(measured.cluster.workers[2].speed, 4.0);
  EXPECT_EQ(measured.cluster.workers[0].memory_bytes, 1'000);
  EXPECT_EQ(measured.cluster.workers[1].memory_bytes, std::numeric_limits<double>::infinity());
  EXPECT_EQ(measured.cluster.workers[1].offload_bytes_per_second, 0.0) << "not known";
  EXPECT_EQ(measured.cluster.workers[2].offload_bytes_per_second, 3e9);
  ASSERT_EQ(measured.cluster.hosts.size(), 3u);
  EXPECT_EQ(measured.cluster.hosts[0].inside_bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(measured.cluster.hosts[0].inside_latency_s, 5e-6);
  EXPECT_EQ(measured.cluster.hosts[0].nic_bytes_per_second, 1e8);
  EXPECT_DOUBLE_EQ(measured.cluster.hosts[0].nic_latency_s, 60e-6);
  ASSERT_EQ(measured.cluster.paths.size(), 1u);
  EXPECT_EQ(measured.cluster.paths[0].from, 0);
  EXPECT_EQ(measured.cluster.paths[0].to, 2);
  EXPECT_EQ(measured.cluster.paths[0].bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(measured.cluster.paths[0].latency_s, 9e-3);
}

TEST_F(MeasuredClusterTest, OneWorker_HasNoLinks) {
  AddDevice("only", 1.0);
  AddWorker("w", "only", "here", 0);
  const MeasuredCluster measured = ClusterOfProfile(profile_);
  EXPECT_THAT(CheckCluster(measured.cluster), IsOk());
  EXPECT_TRUE(measured.cluster.paths.empty());
}

}  // namespace
}  // namespace penstock
