#include "services/rpc/completion_poller.h"

#include <pthread.h>

#include <utility>

namespace penstock {

void NameThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

CompletionPoller::CompletionPoller(std::unique_ptr<grpc::CompletionQueue> queue, int threads,
                                   const std::string& name)
    : queue_(std::move(queue)) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      NameThread(name);
      Poll();
    });
  }
}

CompletionPoller::~CompletionPoller() {
  queue_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
}

void CompletionPoller::Poll() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<CompletionTag*>(tag)->Complete(ok);
}

}  // namespace penstock
