// Shows ThreadSanitizer what gRPC puts in order: by its completion queues, by memory that it gives back, and by the
// verifiers of certificates that it calls.
//
// gRPC is not instrumented and its locks are atomics, so ThreadSanitizer cannot see that what a thread
// wrote before it started an operation is seen by the thread that takes the operation's tag off the
// queue, or that the thread that releases memory sees all that was written before gRPC got it.
// These functions stand before gRPC's own of the same name in every program of a ThreadSanitizer build,
// add those edges, and call the real ones.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

// gRPC's own function of the name; the program ends if there is none.
template <typename Function>
Function* Real(const char* name) {
  void* const address = dlsym(RTLD_NEXT, name);
  if (address == nullptr) {
    std::fprintf(stderr, "tsan_grpc: gRPC has no function %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(address);
}

}  // namespace

// ------------------------------------------------------------------ what starts an operation of a tag

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  static const auto real = Real<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return real(call, ops, nops, tag, reserved);
}

grpc_call_error grpc_server_request_call(grpc_server* server, grpc_call** call,
                                         grpc_call_details* details, grpc_metadata_array* metadata,
                                         grpc_completion_queue* bound_queue,
                                         grpc_completion_queue* notification_queue, void* tag) {
  static const auto real = Real<decltype(grpc_server_request_call)>("grpc_server_request_call");
  __tsan_release(tag);
  return real(server, call, details, metadata, bound_queue, notification_queue, tag);
}

grpc_call_error grpc_server_request_registered_call(
    grpc_server* server, void* method, grpc_call** call, gpr_timespec* deadline,
    grpc_metadata_array* metadata, grpc_byte_buffer** payload, grpc_completion_queue* bound_queue,
    grpc_completion_queue* notification_queue, void* tag) {
  static const auto real =
      Real<decltype(grpc_server_request_registered_call)>("grpc_server_request_registered_call");
  __tsan_release(tag);
  return real(server, method, call, deadline, metadata, payload, bound_queue, notification_queue,
              tag);
}

// Not of gRPC's public interface: what a grpc::Alarm is started with.
bool grpc_cq_begin_op(grpc_completion_queue* queue, void* tag) {
  static const auto real =
      Real<decltype(grpc_cq_begin_op)>("_Z16grpc_cq_begin_opP21grpc_completion_queuePv");
  __tsan_release(tag);
  return real(queue, tag);
}

// ------------------------------------------------------------------- what takes its tag off the queue

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static const auto real = Real<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = real(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static const auto real =
      Real<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = real(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

// ----------------------------------------------------------------------------- memory exported to gRPC

namespace {

struct Loan {
  void (*give_back)(void*);
  void* user_data;
};

void GiveBack(void* pointer) {
  const std::unique_ptr<Loan> loan(static_cast<Loan*>(pointer));
  __tsan_acquire(loan.get());
  loan->give_back(loan->user_data);
}

}  // namespace

grpc_slice grpc_slice_new_with_user_data(void* data, size_t bytes, void (*give_back)(void*),
                                         void* user_data) {
  static const auto real =
      Real<decltype(grpc_slice_new_with_user_data)>("grpc_slice_new_with_user_data");
  auto loan = std::make_unique<Loan>(Loan{give_back, user_data});
  __tsan_release(loan.get());
  return real(data, bytes, GiveBack, loan.release());
}

// -------------------------------------------------------------------------- verifiers of certificates
// gRPC gets a verifier with the options of credentials, and calls it on threads of its own. Neither function of
// grpc::ExternalCertificateVerifier below is of its public interface: each is what gRPC's core calls.

namespace {

// One address stands for all verifiers, so more order is shown than there is: a race between two calls of a verifier may
// stay unseen.
char verifiers;

}  // namespace

#define PENSTOCK_VERIFIER "_ZN4grpc12experimental27ExternalCertificateVerifier"
#define PENSTOCK_VERIFY                                                            \
  PENSTOCK_VERIFIER                                                                \
  "28VerifyInCoreExternalVerifierEPvP42grpc_tls_custom_verification_check_request" \
  "PFvS4_S2_16grpc_status_codePKcES2_PS5_PPc"
#define PENSTOCK_DESTRUCT PENSTOCK_VERIFIER "30DestructInCoreExternalVerifierEPv"

void grpc_tls_credentials_options_set_certificate_verifier(
    grpc_tls_credentials_options* options, grpc_tls_certificate_verifier* verifier) {
  static const auto real = Real<decltype(grpc_tls_credentials_options_set_certificate_verifier)>(
      "grpc_tls_credentials_options_set_certificate_verifier");
  __tsan_release(&verifiers);
  real(options, verifier);
}

extern "C" int Verify(void* verifier, grpc_tls_custom_verification_check_request* request,
                      grpc_tls_on_custom_verification_check_done_cb callback, void* argument,
                      grpc_status_code* status, char** details) asm(PENSTOCK_VERIFY);
int Verify(void* verifier, grpc_tls_custom_verification_check_request* request,
           grpc_tls_on_custom_verification_check_done_cb callback, void* argument,
           grpc_status_code* status, char** details) {
  static const auto real = Real<decltype(Verify)>(PENSTOCK_VERIFY);
  __tsan_acquire(&verifiers);
  const int done_at_once = real(verifier, request, callback, argument, status, details);
  __tsan_release(&verifiers);
  return done_at_once;
}

extern "C" void Destruct(void* verifier) asm(PENSTOCK_DESTRUCT);
void Destruct(void* verifier) {
  static const auto real = Real<decltype(Destruct)>(PENSTOCK_DESTRUCT);
  __tsan_acquire(&verifiers);
  real(verifier);
}
