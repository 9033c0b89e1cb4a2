//! What TCP knows about a connection: `struct tcp_info` of `linux/tcp.h`.

/// What TCP knows about a connection.
///
/// The kernel's structure has grown over time: a value that this kernel does not have is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// How long it waits for an acknowledgement before it retransmits, in nanoseconds.
    pub rto_ns: Option<u64>,
    /// The maximum segment size for sending, in bytes.
    pub mss_bytes: Option<u32>,
    /// The number of packets that were sent and not acknowledged.
    pub unacked_count: Option<u32>,
    /// The number of packets that are considered lost.
    pub lost_count: Option<u32>,
    /// The smoothed round-trip time, in nanoseconds. `None` before the first measurement.
    pub rtt_ns: Option<u64>,
    /// The variation of the round-trip time, in nanoseconds.
    pub rtt_var_ns: Option<u64>,
    /// The slow start threshold, in packets. `None` if there is none yet.
    pub ssthresh_count: Option<u32>,
    /// The congestion window, in packets.
    pub cwnd_count: Option<u32>,
    /// The number of retransmitted packets.
    pub retransmitted_count: Option<u32>,
    /// The number of bytes that the other side acknowledged.
    pub acked_bytes: Option<u64>,
    /// The number of bytes received.
    pub received_bytes: Option<u64>,
    /// The number of bytes that were written to the socket but not sent.
    pub notsent_bytes: Option<u32>,
    /// The minimum round-trip time, in nanoseconds. `None` before the first measurement.
    pub min_rtt_ns: Option<u64>,
    /// The rate at which data arrived at the other side, in bytes a second.
    pub delivery_rate_bytes: Option<u64>,
    /// The number of bytes sent, including retransmissions.
    pub sent_bytes: Option<u64>,
    /// The number of retransmitted bytes.
    pub retransmitted_bytes: Option<u64>,
    /// The name of the congestion control algorithm, padded with zeros.
    congestion: [u8; NAME_MAX],
}

/// TCP_CA_NAME_MAX of the kernel. It includes a zero after the name.
const NAME_MAX: usize = 16;

/// What the kernel writes for a missing value.
const INFINITE: u32 = 0x7fff_ffff;

impl TcpInfo {
    /// Made from as many bytes of the kernel's structure as there are, and from the name of the
    /// congestion control algorithm.
    pub(super) fn new(bytes: &[u8], congestion: &[u8]) -> TcpInfo {
        let mut name = [0; NAME_MAX];
        let len = congestion.len().min(NAME_MAX);
        name[..len].copy_from_slice(&congestion[..len]);
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let microseconds = |at: usize| Some(u64::from(word(at)?) * 1000);
        TcpInfo {
            rto_ns: microseconds(8),
            mss_bytes: word(16),
            unacked_count: word(24),
            lost_count: word(32),
            rtt_ns: microseconds(68).filter(|&time| time != 0),
            rtt_var_ns: microseconds(72),
            ssthresh_count: word(76).filter(|&count| count < INFINITE),
            cwnd_count: word(80),
            retransmitted_count: word(100),
            acked_bytes: long(120),
            received_bytes: long(128),
            notsent_bytes: word(144),
            min_rtt_ns: microseconds(148).filter(|&time| time < u64::from(u32::MAX) * 1000),
            delivery_rate_bytes: long(160),
            sent_bytes: long(200),
            retransmitted_bytes: long(208),
            congestion: name,
        }
    }

    /// The name of the congestion control algorithm.
    pub fn congestion(&self) -> Option<&[u8]> {
        let mut names = self.congestion.split(|&byte| byte == 0);
        names.next().filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the offset of each value is the one in the C library's structure.
    #[test]
    fn values_are_where_the_c_library_has_them() {
        // Each word holds its own offset.
        let bytes: Vec<u8> = (0..62_u32).flat_map(|word| (word * 4).to_ne_bytes()).collect();
        let info = TcpInfo::new(&bytes, b"cubic");
        let at = std::mem::offset_of!(libc::tcp_info, tcpi_rtt) as u64;
        assert_eq!(info.rtt_ns, Some(at * 1000));
        let offset = |at: usize| Some(at as u32);
        assert_eq!(
            info.mss_bytes,
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_snd_mss))
        );
        assert_eq!(
            info.unacked_count,
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_unacked))
        );
        assert_eq!(info.lost_count, offset(std::mem::offset_of!(libc::tcp_info, tcpi_lost)));
        assert_eq!(
            info.cwnd_count,
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_snd_cwnd))
        );
        assert_eq!(
            info.ssthresh_count,
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_snd_ssthresh))
        );
        assert_eq!(
            info.retransmitted_count,
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_total_retrans))
        );
        let rto = std::mem::offset_of!(libc::tcp_info, tcpi_rto) as u64;
        assert_eq!(info.rto_ns, Some(rto * 1000));
        assert_eq!(info.acked_bytes.map(|bytes| bytes as u32), Some(120));
        assert_eq!(info.retransmitted_bytes.map(|bytes| bytes as u32), Some(208));
        assert_eq!(info.congestion(), Some(&b"cubic"[..]));
    }

    /// Check that an older kernel's shorter structure gives fewer values, and that the kernel's
    /// marks for a missing value give none.
    #[test]
    fn shorter_structures_have_fewer_values() {
        let mut bytes = vec![0; 104];
        bytes[76..80].copy_from_slice(&INFINITE.to_ne_bytes());
        let info = TcpInfo::new(&bytes, b"");
        assert_eq!(info.retransmitted_count, Some(0));
        assert_eq!(
            (info.acked_bytes, info.min_rtt_ns, info.ssthresh_count),
            (None, None, None)
        );
        for len in 0..bytes.len() {
            let _ = TcpInfo::new(&bytes[..len], b"");
        }
        let mut long = vec![0; 152];
        long[148..].copy_from_slice(&u32::MAX.to_ne_bytes());
        let info = TcpInfo::new(&long, b"");
        assert_eq!((info.min_rtt_ns, info.rtt_ns), (None, None));
    }
}
