//! What TCP knows of a connection: `struct tcp_info` of `linux/tcp.h`.

/// What TCP knows of a connection.
///
/// The structure has grown: a value that this kernel's does not have is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo<'a> {
    bytes: &'a [u8],
    /// The name of the algorithm of congestion control.
    pub(super) congestion: Option<&'a [u8]>,
}

/// What the kernel writes where there is no value.
const INFINITE: u32 = 0x7fff_ffff;

impl<'a> TcpInfo<'a> {
    /// The bytes of the kernel's structure, as many as it has.
    #[doc(hidden)]
    pub fn new(bytes: &'a [u8], congestion: Option<&'a [u8]>) -> TcpInfo<'a> {
        TcpInfo { bytes, congestion }
    }

    /// The bytes of the kernel's structure.
    #[doc(hidden)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    fn long(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    fn microseconds(&self, at: usize) -> Option<u64> {
        Some(u64::from(self.word(at)?) * 1000)
    }

    /// How long it waits for a confirmation before it sends again, in nanoseconds.
    pub fn rto_ns(&self) -> Option<u64> {
        self.microseconds(8)
    }

    /// The length of what it sends in one packet.
    pub fn mss_bytes(&self) -> Option<u32> {
        self.word(16)
    }

    /// How many packets were sent and not confirmed.
    pub fn unacked_count(&self) -> Option<u32> {
        self.word(24)
    }

    /// How many packets are thought to be lost.
    pub fn lost_count(&self) -> Option<u32> {
        self.word(32)
    }

    /// The round trip time, smoothed, in nanoseconds. `None` before the first one.
    pub fn rtt_ns(&self) -> Option<u64> {
        self.microseconds(68).filter(|&time| time != 0)
    }

    /// How much the round trip time varies, in nanoseconds.
    pub fn rtt_var_ns(&self) -> Option<u64> {
        self.microseconds(72)
    }

    /// The slow start threshold, in packets. `None` while there is none.
    pub fn ssthresh_count(&self) -> Option<u32> {
        self.word(76).filter(|&count| count < INFINITE)
    }

    /// The congestion window, in packets.
    pub fn cwnd_count(&self) -> Option<u32> {
        self.word(80)
    }

    /// How many packets were sent again.
    pub fn retransmitted_count(&self) -> Option<u32> {
        self.word(100)
    }

    /// How many bytes were confirmed by the other side.
    pub fn acked_bytes(&self) -> Option<u64> {
        self.long(120)
    }

    /// How many bytes were received.
    pub fn received_bytes(&self) -> Option<u64> {
        self.long(128)
    }

    /// How many bytes it was given and has not sent.
    pub fn notsent_bytes(&self) -> Option<u32> {
        self.word(144)
    }

    /// The shortest round trip time, in nanoseconds. `None` before the first one.
    pub fn min_rtt_ns(&self) -> Option<u64> {
        self.microseconds(148).filter(|&time| time < u64::from(u32::MAX) * 1000)
    }

    /// How fast data arrived at the other side, in bytes a second.
    pub fn delivery_rate_bytes(&self) -> Option<u64> {
        self.long(160)
    }

    /// How many bytes were sent, those that were sent again too.
    pub fn sent_bytes(&self) -> Option<u64> {
        self.long(200)
    }

    /// How many bytes were sent again.
    pub fn retransmitted_bytes(&self) -> Option<u64> {
        self.long(208)
    }

    /// The name of the algorithm of congestion control.
    pub fn congestion(&self) -> Option<&'a [u8]> {
        self.congestion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each value is where the C library has it, by a structure that it lays out.
    #[test]
    fn values_are_where_the_c_library_has_them() {
        // Each word is its own place.
        let bytes: Vec<u8> = (0..62_u32).flat_map(|word| (word * 4).to_ne_bytes()).collect();
        let info = TcpInfo::new(&bytes, Some(b"cubic"));
        let at = std::mem::offset_of!(libc::tcp_info, tcpi_rtt) as u64;
        assert_eq!(info.rtt_ns(), Some(at * 1000));
        let offset = |at: usize| Some(at as u32);
        assert_eq!(
            info.mss_bytes(),
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_snd_mss))
        );
        assert_eq!(
            info.unacked_count(),
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_unacked))
        );
        assert_eq!(
            info.lost_count(),
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_lost))
        );
        assert_eq!(
            info.cwnd_count(),
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_snd_cwnd))
        );
        assert_eq!(
            info.ssthresh_count(),
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_snd_ssthresh))
        );
        assert_eq!(
            info.retransmitted_count(),
            offset(std::mem::offset_of!(libc::tcp_info, tcpi_total_retrans))
        );
        let rto = std::mem::offset_of!(libc::tcp_info, tcpi_rto) as u64;
        assert_eq!(info.rto_ns(), Some(rto * 1000));
        assert_eq!(info.acked_bytes().map(|bytes| bytes as u32), Some(120));
        assert_eq!(info.retransmitted_bytes().map(|bytes| bytes as u32), Some(208));
        assert_eq!(info.congestion(), Some(&b"cubic"[..]));
    }

    /// Check that an older kernel's shorter structure has fewer values, and that what stands for
    /// "none" is none.
    #[test]
    fn shorter_structures_have_fewer_values() {
        let mut bytes = vec![0; 104];
        bytes[76..80].copy_from_slice(&INFINITE.to_ne_bytes());
        let info = TcpInfo::new(&bytes, None);
        assert_eq!(info.retransmitted_count(), Some(0));
        assert_eq!(
            (info.acked_bytes(), info.min_rtt_ns(), info.ssthresh_count()),
            (None, None, None)
        );
        for len in 0..bytes.len() {
            let _ = TcpInfo::new(&bytes[..len], None).retransmitted_count();
        }
        let mut long = vec![0; 152];
        long[148..].copy_from_slice(&u32::MAX.to_ne_bytes());
        let info = TcpInfo::new(&long, None);
        assert_eq!((info.min_rtt_ns(), info.rtt_ns()), (None, None));
    }
}
