// RpcServer: a gRPC server whose services are tables of method -> handler.
//
//   RpcServer server(options);
//   auto& registry = server.AddService<v1::WorkerRegistry::AsyncService>();
//   using Service = v1::WorkerRegistry::AsyncService;
//   server.Unary(registry, &Service::RequestHeartbeat, [&](const v1::HeartbeatRequest& request,
//                                                          const CallInfo&) { return ...; });
//   PENSTOCK_RETURN_IF_ERROR(server.Start());
//
// Handlers run on the threads of their callers' lane (call_lane.h), never on polling threads. All limits of limits.h are set, and
// compression is refused (a compressed message is inflated before its size is checked). The standard
// health service answers; reflection only if asked for.
//
// Thread safety: register and Start from one thread; the rest from any.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/rpc/address.h"
#include "services/rpc/call_lane.h"
#include "services/rpc/completion_poller.h"
#include "services/rpc/connection_acceptor.h"
#include "services/rpc/health.h"
#include "services/rpc/limits.h"
#include "services/rpc/server_call.h"
#include "services/rpc/transport_security.h"

namespace penstock {

struct RpcServerOptions {
  HostPort listen;  // port 0: any free one
  // See limits.h.
  int connections_max = rpc_limits::kConnectionsMax;
  absl::Duration connection_age = rpc_limits::kConnectionAge;
  int message_bytes_max = rpc_limits::kControlMessageBytesMax;
  // Whichever thread polls also moves the bytes of all connections, so more than one pays only where
  // one cannot move enough.
  int polling_threads = 1;
  // Of each lane, and of others than the cluster's.
  int handler_threads = rpc_limits::kHandlerThreads;
  int handler_queue_max = rpc_limits::kHandlerQueueMax;
  // Of the cluster's own programs, whose lane has a place for all of them.
  int cluster_calls_max = rpc_limits::kClusterCallsMax;
  // Of users.
  int calls_per_peer_max = rpc_limits::kCallsPerPeerMax;
  // Lists the services for tools such as grpcurl.
  bool reflection = false;
  TransportSecurity security = TransportSecurity::Plaintext();
  // The address where the health service also answers, in plain text and alone: for probes, which
  // have no certificates. None: nowhere.
  std::optional<HostPort> health;
  // Called, unless null, with every call that its caller may not make, on a thread of gRPC's; must not
  // block.
  std::function<void(const absl::Status&)> on_refused;
};

// Something that lives in the same server and on its polling threads: the tensor stream.
class ServerExtension {
 public:
  virtual ~ServerExtension() = default;
  // Adds its service and arguments.
  virtual void Register(grpc::ServerBuilder& builder) = 0;
  // Each queue has one polling thread, which completes CompletionTags.
  virtual void Start(std::vector<grpc::ServerCompletionQueue*> queues) = 0;
  // The server begins to shut down: end what would go on for ever.
  virtual void Close() = 0;
  // The server is shut down: returns when nothing of the extension is in a queue any more.
  virtual void AwaitEnd() = 0;
};

class RpcServer {
 public:
  explicit RpcServer(RpcServerOptions options);
  // Shuts down, if that is not done yet.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // ---- Before Start. Objects that handlers and extensions refer to must outlive the server.

  // `callers`: whose lane its methods run on, but for its streams.
  template <typename Service>
  Service& AddService(Callers callers = Callers::kUsers);

  // `accept`: the generated Request method, such as &v1::JobService::AsyncService::RequestGetJob.
  template <typename Service, typename Base, typename Request, typename Response>
  void Unary(Service& service,
             void (Base::*accept)(grpc::ServerContext*, Request*,
                                  grpc::ServerAsyncResponseWriter<Response>*,
                                  grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
             UnaryHandler<std::type_identity_t<Request>, std::type_identity_t<Response>> handler);

  // Adds a handler whose answer comes later.
  template <typename Service, typename Base, typename Request, typename Response>
  void UnaryAsync(
      Service& service,
      void (Base::*accept)(grpc::ServerContext*, Request*,
                           grpc::ServerAsyncResponseWriter<Response>*, grpc::CompletionQueue*,
                           grpc::ServerCompletionQueue*, void*),
      AsyncUnaryHandler<std::type_identity_t<Request>, std::type_identity_t<Response>> handler);

  // A method that answers with a stream: see StreamPull. `callers`: whose lane it runs on.
  template <typename Service, typename Base, typename Request, typename Response>
  void Stream(Service& service,
              void (Base::*accept)(grpc::ServerContext*, Request*,
                                   grpc::ServerAsyncWriter<Response>*, grpc::CompletionQueue*,
                                   grpc::ServerCompletionQueue*, void*),
              StreamHandler<std::type_identity_t<Request>, std::type_identity_t<Response>> handler,
              Callers callers = Callers::kWatchers);

  void AddExtension(ServerExtension& extension);

  // Listens and serves; health says NOT_SERVING until SetServing(true). Once.
  // Errors: FailedPrecondition if the address is taken or not ours.
  absl::Status Start();

  // ---- After Start.

  // Where it listens, with the port that was found.
  HostPort address() const { return address_; }
  // Where the health service answers alone. REQUIRES: options.health.
  HostPort health_address() const { return probes_->address(); }

  void SetServing(bool serving);
  // A part of it that has a health of its own, by this name.
  void SetPartServing(const std::string& name, bool serving);

  // Takes no new calls, ends streams, lets other calls end by themselves for `grace`, then cancels
  // them, and returns when all handlers have returned and all replies were given. Idempotent.
  void Shutdown(absl::Duration grace = rpc_limits::kServerShutdownGrace);

 private:
  struct OwnedService {
    std::unique_ptr<grpc::Service> service;
    Callers callers;
  };

  // Whether its limits are those of tensor streams.
  bool carries_tensors() const { return !extensions_.empty(); }
  void Configure(grpc::ServerBuilder& builder);
  Callers CallersOf(const grpc::Service& service) const;
  std::unique_ptr<CallLane> MakeLane(Callers callers) const;

  const RpcServerOptions options_;
  HostPort address_;
  std::vector<OwnedService> services_;
  std::vector<ServerExtension*> extensions_;
  // Posts the first call of each method; filled by Unary and Stream.
  std::vector<std::function<void(CallHost&)>> methods_;
  std::set<Callers> callers_;  // of all methods

  HealthService health_;

  // In the order they are made; Shutdown ends them the other way round, but for the acceptor, which ends first.
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  CallLanes lanes_;
  std::unique_ptr<CallHost> calls_;
  std::vector<std::unique_ptr<CompletionPoller>> pollers_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<RpcServer> probes_;  // the health service alone
};

template <typename Service>
Service& RpcServer::AddService(Callers callers) {
  auto service = std::make_unique<Service>();
  Service& result = *service;
  services_.push_back({std::move(service), callers});
  return result;
}

template <typename Service, typename Base, typename Request, typename Response>
void RpcServer::Unary(
    Service& service,
    void (Base::*accept)(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Response>*,
                         grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
    UnaryHandler<std::type_identity_t<Request>, std::type_identity_t<Response>> handler) {
  UnaryAsync(service, accept,
             [handler = std::move(handler)](const Request& request, const CallInfo& info,
                                            const Reply<Response>& reply) {
               reply(handler(request, info));
             });
}

template <typename Service, typename Base, typename Request, typename Response>
void RpcServer::UnaryAsync(
    Service& service,
    void (Base::*accept)(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Response>*,
                         grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
    AsyncUnaryHandler<std::type_identity_t<Request>, std::type_identity_t<Response>> handler) {
  using Method = UnaryMethod<Service, Request, Response>;
  auto post = [accept](Service& s, grpc::ServerContext* context, Request* request,
                       grpc::ServerAsyncResponseWriter<Response>* responder,
                       grpc::ServerCompletionQueue* queue,
                       void* tag) { (s.*accept)(context, request, responder, queue, queue, tag); };
  const Callers callers = CallersOf(service);
  callers_.insert(callers);
  auto method = std::make_shared<const Method>(Method{service, callers, post, std::move(handler)});
  // The closure lives as long as the server and keeps the method for all calls of it.
  methods_.push_back([method](CallHost& host) {
    host.Adopt(std::make_unique<UnaryCall<Service, Request, Response>>(host, *method));
  });
}

template <typename Service, typename Base, typename Request, typename Response>
void RpcServer::Stream(
    Service& service,
    void (Base::*accept)(grpc::ServerContext*, Request*, grpc::ServerAsyncWriter<Response>*,
                         grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
    StreamHandler<std::type_identity_t<Request>, std::type_identity_t<Response>> handler,
    Callers callers) {
  using Method = StreamMethod<Service, Request, Response>;
  auto post = [accept](Service& s, grpc::ServerContext* context, Request* request,
                       grpc::ServerAsyncWriter<Response>* writer,
                       grpc::ServerCompletionQueue* queue,
                       void* tag) { (s.*accept)(context, request, writer, queue, queue, tag); };
  callers_.insert(callers);
  auto method = std::make_shared<const Method>(Method{service, callers, post, std::move(handler)});
  methods_.push_back([method](CallHost& host) {
    host.Adopt(std::make_unique<StreamCall<Service, Request, Response>>(host, *method));
  });
}

}  // namespace penstock
