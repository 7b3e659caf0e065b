// RawSender: a client of a tensor stream that writes any bytes it likes.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"
#include "services/transport/frame.h"

namespace penstock {

class RawSender {
 public:
  explicit RawSender(const std::string& address)
      : stub_(MakeTensorChannel(address, grpc::InsecureChannelCredentials())) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    call_ = stub_.PrepareCall(&context_, kTensorStreamMethod, &queue_);
    call_->StartCall(nullptr);
    Next();
  }
  ~RawSender() {
    queue_.Shutdown();
    while (Next()) {
    }
  }

  bool Write(const grpc::ByteBuffer& frame) {
    call_->Write(frame, nullptr);
    return Next();
  }
  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return Write(grpc::ByteBuffer(&slice, 1));
  }
  bool Read() {
    call_->Read(&incoming_, nullptr);
    return Next();
  }
  // What was read last.
  grpc::ByteBuffer& incoming() { return incoming_; }
  // Reads to the end; the server's verdict.
  absl::Status Finish() {
    while (Read()) {
    }
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    return FromGrpcStatus(status, "server");
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer incoming_;
};

}  // namespace penstock
