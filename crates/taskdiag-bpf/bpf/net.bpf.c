// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts what each process sends and receives through sockets: payload, at the call that moves it.
 *
 * The programs run in the context of the caller. A thread counts for its process, a thread of
 * io_uring for the owner of the ring, a kernel thread for itself.
 */
#include "compat.bpf.h"
#include "net.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000
#define IFF_LOOPBACK 8

/* ---- where it goes ---- */

static __always_inline bool is_loopback4(__be32 address)
{
	return *(__u8 *)&address == 127;
}

static __always_inline bool is_loopback6(const __be32 *address)
{
	const __u8 *bytes = (void *)address;
	bool is_mapped = !address[0] && !address[1] && !bytes[8] && !bytes[9] && bytes[10] == 0xff && bytes[11] == 0xff;
	bool is_one = !address[0] && !address[1] && !address[2] && !bytes[12] && !bytes[13] && !bytes[14] && bytes[15] == 1;

	return is_one || (is_mapped && bytes[12] == 127);
}

/* The two ends of something. An address of IPv4 is the first word. */
struct ends {
	__be32 local[4], remote[4];
};

static __always_inline bool is_connected(const struct ends *ends)
{
	return ends->remote[0] || ends->remote[1] || ends->remote[2] || ends->remote[3];
}

/*
 * Whether the other end is on this machine: by its address, or because both are the same. A socket
 * of UDP need not be connected, and its datagrams lead anywhere: then its own address counts.
 */
static __always_inline bool is_local(const struct ends *ends, __u16 family)
{
	const __be32 *local = ends->local, *remote = ends->remote, *known = is_connected(ends) ? remote : local;

	if (known == remote && local[0] == remote[0] && local[1] == remote[1] && local[2] == remote[2] && local[3] == remote[3])
		return true;
	return family == AF_INET ? is_loopback4(known[0]) : is_loopback6(known);
}

static __always_inline void read_ends(struct ends *ends, struct sock *sk, __u16 family)
{
	__builtin_memset(ends, 0, sizeof(*ends));
	if (family == AF_INET) {
		ends->local[0] = sk->__sk_common.skc_rcv_saddr;
		ends->remote[0] = sk->__sk_common.skc_daddr;
	} else {
		bpf_core_read(ends->local, sizeof(ends->local), &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(ends->remote, sizeof(ends->remote), &sk->__sk_common.skc_v6_daddr);
	}
}

/* By the route, or by the addresses of the socket. */
static __always_inline bool is_to_this_machine(struct sock *sk, __u16 family)
{
	struct dst_entry *dst = sk->sk_dst_cache;
	struct ends ends;

	if (dst && dst->dev && dst->dev->flags & IFF_LOOPBACK)
		return true;
	read_ends(&ends, sk, family);
	return is_local(&ends, family);
}

/* ---- how much ---- */

static __always_inline struct td_net *begin(struct td_net_key *key)
{
	struct td_net *whole = net_of_all(), *found, begun = {};

	if (!whole || !whole->net_since_ns)
		return 0;
	bpf_map_update_elem(&net, key, &begun, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&net, key);
	if (!found)
		__sync_fetch_and_add(&whole->uncounted, 1);
	return found;
}

static __always_inline int count(struct sock *sk, int bytes, bool is_sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u16 family = sk->__sk_common.skc_family;
	struct td_net_key key = { task->group_leader->start_boottime, task->tgid };
	struct td_net *counted;
	__u64 *totals, *count;

	if (bytes < 0 || (family != AF_UNIX && family != AF_INET && family != AF_INET6))
		return 0;
	counted = bpf_map_lookup_elem(&net, &key) ?: begin(&key);
	if (!counted)
		return 0;
	if (family == AF_UNIX) {
		totals = is_sent ? &counted->unix_sent_bytes : &counted->unix_received_bytes;
		count = is_sent ? &counted->unix_sent_count : &counted->unix_received_count;
	} else if (is_to_this_machine(sk, family)) {
		totals = is_sent ? &counted->loopback_sent_bytes : &counted->loopback_received_bytes;
		count = is_sent ? &counted->loopback_sent_count : &counted->loopback_received_count;
	} else {
		totals = is_sent ? &counted->net_sent_bytes : &counted->net_received_bytes;
		count = is_sent ? &counted->net_sent_count : &counted->net_received_count;
	}
	__sync_fetch_and_add(totals, bytes);
	__sync_fetch_and_add(count, 1);
	return 0;
}

SEC("tp_btf/sock_send_length")
int on_send(__u64 *ctx)
{
	return count((void *)ctx[0], ctx[1], true);
}

SEC("tp_btf/sock_recv_length")
int on_receive(__u64 *ctx)
{
	/* What is only looked at stays there; what was not sent was not received either. */
	return ctx[2] & (MSG_PEEK | MSG_ERRQUEUE) ? 0 : count((void *)ctx[0], ctx[1], false);
}

/* The entry of a process stays until nobody can ask for it any more: a zombie still has it. */
SEC("tp_btf/sched_process_free")
int on_free(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct td_net_key key = { task->start_boottime, task->tgid };

	/* A leader is the last of its threads. One whose id a thread took in execve(2) has another. */
	if (task->pid == task->tgid)
		bpf_map_delete_elem(&net, &key);
	return 0;
}

/* Begins to count, once the others are attached. */
SEC("syscall")
int begin_counting(void *ctx)
{
	struct td_net *whole = net_of_all();

	if (whole)
		whole->net_since_ns = bpf_ktime_get_boot_ns();
	return 0;
}
