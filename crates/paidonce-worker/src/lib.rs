//! After the commit: business effects leave the ledger, with its own retries.
//!
//! Promise (P7): a committed effect is sent until its receiver took it, or it is dead and a person was told; a crash between
//! any two steps sends again and never loses. Receivers see the same `webhook-id` on every try.
//!
//! Reading order: `claiming` (claim, try, report), [`relay`] (deliveries), [`deliver`] (one try), [`message`] (what a
//! subscriber is told), [`sign`], [`backoff`]; [`channel_relay`] (calls to platforms), [`channel_client`] (one call),
//! [`key_refresh`].

pub mod backoff;
pub mod channel_client;
pub mod channel_relay;
mod claiming;
pub mod deliver;
pub mod key_refresh;
pub mod message;
pub mod relay;
pub mod sign;

pub use backoff::Schedule;
pub use channel_client::{AccountDirectory, ChannelClientSettings, HttpChannelClient};
pub use channel_relay::{ChannelRelay, ChannelRelaySettings, Relays};
pub use deliver::{Deliverer, Secrets};
pub use relay::{Relay, RelaySettings};
pub use sign::SigningSecret;
