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
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262
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

/* By the addresses of the socket, which are at hand, or by the route. */
static __always_inline bool is_to_this_machine(struct sock *sk, __u16 family)
{
	struct dst_entry *dst;
	struct ends ends;

	read_ends(&ends, sk, family);
	if (is_local(&ends, family))
		return true;
	dst = sk->sk_dst_cache;
	return dst && dst->dev && dst->dev->flags & IFF_LOOPBACK;
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

static __always_inline __u64 *bytes_of_protocol(struct td_net *counted, __u16 protocol, bool is_sent)
{
	if (protocol == IPPROTO_UDP)
		return is_sent ? &counted->net_udp_sent_bytes : &counted->net_udp_received_bytes;
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP)
		return is_sent ? &counted->net_tcp_sent_bytes : &counted->net_tcp_received_bytes;
	return 0;
}

static __always_inline int count(struct sock *sk, int bytes, bool is_sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u16 family = sk->__sk_common.skc_family;
	struct td_net_key key = { task->group_leader->start_boottime, task->tgid };
	struct td_net *counted;
	__u64 *totals, *count, *of_protocol;

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
		of_protocol = bytes_of_protocol(counted, sk->sk_protocol, is_sent);
		if (of_protocol)
			__sync_fetch_and_add(of_protocol, bytes);
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

/* ---- by the other end ---- */

/* What tells the other ends apart: bits of `parts`. */
#define PART_PROCESS 1
#define PART_ADDRESS 2
#define PART_PORT 4

/* Parts that are not wanted are 0. No protocol is 0: that entry is about the counting. */
struct remote_key {
	__u64 start_ns;
	__u32 pid;
	__u16 protocol;
	__be16 port;
	/* Of IPv4 as IPv6 maps it. */
	__be32 address[4];
};

struct remote {
	__u64 sent_bytes, received_bytes;
	/* In the entry about the counting: which parts are wanted, and calls for which there was no room. */
	__u64 parts, uncounted;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct remote_key);
	__type(value, struct remote);
} remotes SEC(".maps");

static __always_inline int count_remote(struct sock *sk, int bytes, bool is_sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u16 family = sk->__sk_common.skc_family;
	struct remote_key key = {};
	struct remote *whole, *found, begun = {};
	struct ends ends;

	if (bytes < 0 || (family != AF_INET && family != AF_INET6) || is_to_this_machine(sk, family))
		return 0;
	whole = bpf_map_lookup_elem(&remotes, &key);
	if (!whole)
		return 0;
	key.protocol = sk->sk_protocol;
	if (whole->parts & PART_PROCESS) {
		key.start_ns = task->group_leader->start_boottime;
		key.pid = task->tgid;
	}
	if (whole->parts & PART_PORT)
		key.port = sk->__sk_common.skc_dport;
	if (whole->parts & PART_ADDRESS) {
		read_ends(&ends, sk, family);
		if (family == AF_INET) {
			((__u8 *)key.address)[10] = ((__u8 *)key.address)[11] = 0xff;
			key.address[3] = ends.remote[0];
		} else {
			__builtin_memcpy(key.address, ends.remote, sizeof(key.address));
		}
	}
	found = bpf_map_lookup_elem(&remotes, &key);
	if (!found) {
		bpf_map_update_elem(&remotes, &key, &begun, BPF_NOEXIST);
		found = bpf_map_lookup_elem(&remotes, &key);
	}
	if (found)
		__sync_fetch_and_add(is_sent ? &found->sent_bytes : &found->received_bytes, bytes);
	else
		__sync_fetch_and_add(&whole->uncounted, 1);
	return 0;
}

SEC("tp_btf/sock_send_length")
int on_send_to_remote(__u64 *ctx)
{
	return count_remote((void *)ctx[0], ctx[1], true);
}

SEC("tp_btf/sock_recv_length")
int on_receive_from_remote(__u64 *ctx)
{
	return ctx[2] & (MSG_PEEK | MSG_ERRQUEUE) ? 0 : count_remote((void *)ctx[0], ctx[1], false);
}
