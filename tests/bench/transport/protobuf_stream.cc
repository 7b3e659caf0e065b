// What one would write without thinking about copies: a stream of protobuf messages with the tensor in
// a bytes field. Same channel settings as the tensor stream, no checksum, gRPC's own flow control.
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "services/rpc/channel.h"
#include "services/rpc/limits.h"
#include "tests/bench/transport/pair.h"

namespace penstock {
namespace {

using Message = google::protobuf::BytesValue;
constexpr char kMethod[] = "/bench.Bytes/Exchange";

// Waits for the one operation that is in progress.
bool Next(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

class ProtobufStream final : public Mover {
 public:
  const char* name() const override { return "protobuf stream"; }

  void Receive(const Load& load, const std::function<void(int)>& listening,
               StopWatch& watch) override {
    grpc::AsyncGenericService service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterAsyncGenericService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, rpc_limits::kTensorFrameBytesMax);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                               rpc_limits::kTensorWindowBytes);
    const auto queue = builder.AddCompletionQueue();
    const auto server = builder.BuildAndStart();
    PENSTOCK_CHECK(server != nullptr);
    listening(port);
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream(&context);
    service.RequestCall(&context, &stream, queue.get(), queue.get(), nullptr);
    PENSTOCK_CHECK(Next(*queue));
    grpc::ByteBuffer bytes;
    std::vector<Message> messages(load.window);
    for (int64_t i = 0; i < load.total_messages(); ++i) {
      stream.Read(&bytes, nullptr);
      PENSTOCK_CHECK(Next(*queue));
      grpc::ProtoBufferReader reader(&bytes);  // what a typed stream does with each message
      Message& message = messages[i % load.window];
      PENSTOCK_CHECK(message.ParseFromZeroCopyStream(&reader));
      int64_t sequence = 0;
      std::memcpy(&sequence, message.value().data(), sizeof(sequence));
      PENSTOCK_CHECK(sequence == i);
      watch.OnMessage();
    }
    stream.Finish(grpc::Status::OK, nullptr);
    Next(*queue);
    server->Shutdown();
    queue->Shutdown();
    while (Next(*queue)) {
    }
  }

  void Send(const Load& load, int port, StopWatch& watch,
            const std::function<void()>& finish) override {
    grpc::GenericStub stub(
        MakeTensorChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    const auto stream = stub.PrepareCall(&context, kMethod, &queue);
    stream->StartCall(nullptr);
    PENSTOCK_CHECK(Next(queue));
    std::vector<Message> messages(load.window);
    for (Message& message : messages) message.mutable_value()->resize(load.message_bytes);
    for (int64_t i = 0; i < load.total_messages(); ++i) {
      Message& message = messages[i % load.window];
      std::memcpy(message.mutable_value()->data(), &i, sizeof(i));
      grpc::ByteBuffer bytes;
      {
        grpc::ProtoBufferWriter writer(&bytes, grpc::kProtoBufferWriterMaxBufferLength,
                                       static_cast<int>(message.ByteSizeLong()));
        PENSTOCK_CHECK(message.SerializeToZeroCopyStream(&writer));
      }
      stream->Write(bytes, nullptr);
      PENSTOCK_CHECK(Next(queue));
      watch.OnMessage();
    }
    finish();
    watch.Stop();
    grpc::Status status;
    stream->Finish(&status, nullptr);
    Next(queue);
    queue.Shutdown();
  }
};

}  // namespace

std::unique_ptr<Mover> MakeProtobufStream() { return std::make_unique<ProtobufStream>(); }

}  // namespace penstock
