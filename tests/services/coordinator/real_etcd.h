// RealEtcd: an etcd of one member as a process of its own, with its data in a temporary directory.
#pragma once

#include <memory>
#include <string>

#include "services/etcd/etcd_client.h"
#include "services/rpc/address.h"
#include "tests/services/cli/process.h"
#include "tests/support/test_directory.h"

namespace penstock {

class RealEtcd {
 public:
  // Starts `etcd`, which Debian's package etcd-server has, and waits until it answers; fails the test if there is none.
  RealEtcd();

  // Returns whether it has answered.
  bool ok() const { return ok_; }
  HostPort address() const { return client_address_; }
  std::unique_ptr<EtcdClient> NewClient() const;
  // Stops the process as it is, and lets it go on.
  void Freeze() const;
  void Thaw() const;

 private:
  const TestDirectory directory_;
  HostPort client_address_;
  std::unique_ptr<Process> process_;
  bool ok_ = false;
};

// Returns an address of this machine where nobody listens now.
HostPort UnusedAddress();

}  // namespace penstock
