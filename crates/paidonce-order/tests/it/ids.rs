//! Identifiers and shards. The golden shard values are part of the stored format: they never change.

use super::support::digest;
use paidonce_order::ids::{IdError, SHARD_COUNT, shard_of};
use paidonce_order::{AccountRef, ChannelTradeNo, Digest, OrderNo, RefundNo, Timestamp};

#[test]
fn orders_stay_on_their_shards_for_ever() {
    let stray = format!("wxpay:1900000001:{}", "0".repeat(64));
    let longest = "x".repeat(64);
    // Worked out apart from this code.
    let golden = [
        ("2025010812345678", 20),
        ("O1", 26),
        ("a", 0),
        ("A", 32),
        ("AbC123", 46),
        ("aBc123", 53),
        ("order|*@-_", 5),
        (stray.as_str(), 45),
        (longest.as_str(), 46),
    ];
    for (id, shard) in golden {
        assert_eq!(shard_of(id), shard, "{id}");
    }
}

#[test]
fn orders_spread_evenly() {
    let mut counts = vec![0_u32; usize::from(SHARD_COUNT)];
    for i in 0..64_000 {
        counts[usize::from(shard_of(&format!("ORDER{i:08}")))] += 1;
    }
    assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
}

#[test]
fn order_numbers_are_what_both_platforms_allow() {
    for good in ["a", "2025010812345678", "AbC_-|*@", &"x".repeat(64)] {
        assert_eq!(OrderNo::parse(good).unwrap().as_str(), good);
    }
    assert!(matches!(OrderNo::parse(""), Err(IdError::Empty { .. })));
    assert!(matches!(OrderNo::parse(&"x".repeat(65)), Err(IdError::TooLong { bytes: 65, .. })));
    for bad in ["a b", "a:b", "a/b", "a\0", "订单", "a\n", "a%", "'", "a;b"] {
        assert!(matches!(OrderNo::parse(bad), Err(IdError::Character { .. })), "{bad:?}");
        assert!(RefundNo::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn identifiers_are_checked_in_json_too() {
    assert!(serde_json::from_str::<OrderNo>("\"a b\"").is_err());
    assert!(serde_json::from_str::<AccountRef>("\"stripe:1\"").is_err());
    assert_eq!(serde_json::to_string(&AccountRef::parse("wxpay:1900000001").unwrap()).unwrap(), "\"wxpay:1900000001\"");
    assert!(ChannelTradeNo::parse("4200 0001").is_err());
}

#[test]
fn digests_have_one_text_form() {
    let text = digest("x").to_string();
    assert_eq!(Digest::parse(&text).unwrap(), digest("x"));
    assert!(Digest::parse(&text[1..]).is_err());
    assert!(Digest::parse(&text.replace(|c: char| c.is_ascii_digit(), "g")).is_err());
    assert_eq!(digest("x").short(), &text[..16]);
}

#[test]
fn times_are_points_whatever_their_offset() {
    let beijing = Timestamp::parse("2026-01-15T09:59:58.120+08:00").unwrap();
    assert_eq!(beijing, Timestamp::parse("2026-01-15T01:59:58.12Z").unwrap());
    assert_eq!(beijing.to_string(), "2026-01-15T01:59:58.12Z");
    assert_eq!(Timestamp::parse("2026-01-15T01:59:58.1234567Z").unwrap().as_micros() % 1_000_000, 123_456);
    assert!(Timestamp::parse("2026-01-15 01:59:58").is_err());
    assert_eq!(Timestamp::from_micros(-1).as_seconds(), -1);
}
