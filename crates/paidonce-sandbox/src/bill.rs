//! Bills: the files behind download addresses, the archives they come in, and what both platforms count alike.

use crate::moment::Moment;
use crate::order::{Order, Refund, RefundStatus};

/// A file behind a download address.
#[derive(Debug, Clone)]
pub struct Download {
    /// Exact bytes.
    pub bytes: Vec<u8>,
    /// The address is good until then.
    pub until: Moment,
}

/// The fee is 0.60 %, rounded to the fen.
#[must_use]
pub fn fee_minor(amount_minor: i64) -> i64 {
    amount_minor.saturating_mul(6).saturating_add(500).div_euclid(1_000)
}

/// One movement of an order, as bills list them.
#[derive(Debug, Clone, Copy)]
pub enum Movement<'a> {
    /// Money came in.
    Payment(&'a Order),
    /// Money was asked back; it is listed at that time.
    Refund(&'a Order, &'a Refund),
}

impl<'a> Movement<'a> {
    /// The order.
    #[must_use]
    pub const fn order(&self) -> &'a Order {
        match self {
            Self::Payment(order) | Self::Refund(order, _) => order,
        }
    }

    /// When it is listed.
    #[must_use]
    pub fn at(&self) -> Moment {
        match self {
            Self::Payment(order) => order.payment.as_ref().map_or(order.created_at, |paid| paid.paid_at),
            Self::Refund(_, refund) => refund.requested_at,
        }
    }

    /// What moved, always positive.
    #[must_use]
    pub const fn amount_minor(&self) -> i64 {
        match self {
            Self::Payment(order) => order.amount_minor,
            Self::Refund(_, refund) => refund.amount_minor,
        }
    }
}

/// Everything that moved, in the order of time. A refund that was refused for good moved nothing.
#[must_use]
pub fn movements<'a>(orders: impl Iterator<Item = &'a Order>) -> Vec<Movement<'a>> {
    let mut found = Vec::new();
    for order in orders.filter(|order| order.payment.is_some()) {
        found.push(Movement::Payment(order));
        let moved = order.refunds.iter().filter(|refund| refund.status != RefundStatus::Closed);
        found.extend(moved.map(|refund| Movement::Refund(order, refund)));
    }
    found.sort_by_key(Movement::at);
    found
}

/// CRC-32 (IEEE), as gzip and zip need it.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

/// A gzip file around the bytes, stored and not compressed: a reader can't tell the difference.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];
    let blocks: Vec<&[u8]> = bytes.chunks(usize::from(u16::MAX)).collect();
    let blocks = if blocks.is_empty() { vec![&[][..]] } else { blocks };
    let last = blocks.len().saturating_sub(1);
    for (index, block) in blocks.iter().enumerate() {
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(index == last));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&crc32(bytes).to_le_bytes());
    out.extend_from_slice(&length_of(bytes).to_le_bytes());
    out
}

/// A zip file of stored entries. Names are bytes: Alipay writes GBK without the UTF-8 flag.
#[must_use]
pub fn zip(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let offset = length_of(&out);
        // Version 2.0, no flags, stored, 1980-01-01.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        common.extend_from_slice(&crc32(bytes).to_le_bytes());
        common.extend_from_slice(&length_of(bytes).to_le_bytes());
        common.extend_from_slice(&length_of(bytes).to_le_bytes());
        common.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        common.extend_from_slice(&[0, 0]);
        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&common);
        out.extend_from_slice(name);
        out.extend_from_slice(bytes);
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&common);
        // No comment, disk 0, no attributes.
        directory.extend_from_slice(&[0; 10]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name);
    }
    let (begin, size) = (length_of(&out), length_of(&directory));
    let count = u16::try_from(entries.len()).unwrap_or(u16::MAX).to_le_bytes();
    out.extend_from_slice(&directory);
    out.extend_from_slice(b"PK\x05\x06\x00\x00\x00\x00");
    out.extend_from_slice(&count);
    out.extend_from_slice(&count);
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&begin.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out
}

fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_gzip_and_zip() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn fees_are_rounded_to_the_fen() {
        assert_eq!([1_000, 300, 8_888, 1].map(fee_minor), [6, 2, 53, 0]);
    }
}
