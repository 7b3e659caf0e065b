// RealEtcd: an etcd as processes of its own, with its data in a temporary directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/etcd/etcd_client.h"
#include "services/rpc/address.h"
#include "tests/services/cli/process.h"
#include "tests/support/test_directory.h"

namespace penstock {

class RealEtcd {
 public:
  // Starts `members` times `etcd`, which Debian's package etcd-server has, and waits until they answer; fails the test if
  // there is none.
  explicit RealEtcd(size_t members = 1);

  // Returns whether all have answered.
  bool ok() const { return ok_; }
  size_t size() const { return members_.size(); }
  // Where clients reach a member.
  HostPort address(size_t member = 0) const { return members_[member].clients; }
  std::vector<HostPort> addresses() const;
  // Of all members.
  std::unique_ptr<EtcdClient> NewClient() const;
  // Stops a member's process as it is, and lets it go on.
  void Freeze(size_t member = 0) const;
  void Thaw(size_t member = 0) const;
  // Kills a member, and starts it again with its data.
  void Kill(size_t member);
  void Restart(size_t member) { Start(member); }
  // Whether the member answers, which it does while there is a majority.
  bool Answers(size_t member) const;

 private:
  struct Member {
    HostPort clients;
    HostPort peers;
    std::unique_ptr<Process> process;
  };

  void Start(size_t member);

  const TestDirectory directory_;
  const std::string program_;
  std::vector<Member> members_;
  bool ok_ = false;
};

// Returns an address of this machine where nobody listens now.
HostPort UnusedAddress();

}  // namespace penstock
