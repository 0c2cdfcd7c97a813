//! Platform keys that are fetched before anybody needs them: at start, twice a day, and after a reload.

use std::time::Duration;

use paidonce_app::ports::{ChannelClient, KeyRefresh};
use paidonce_order::ids::AccountRef;
use tokio::sync::watch;

use crate::channel_client::HttpChannelClient;

/// WeChat Pay announces a new certificate days before it signs with it, and asks to be asked twice a day.
const EVERY: Duration = Duration::from_secs(12 * 3600);
/// After a fetch that failed. Until then an unknown serial on a callback makes its own attempts.
const AFTER_FAILURE: Duration = Duration::from_secs(300);

/// Runs until `stop` turns true (or its sender is gone). `accounts` are those whose platform changes its keys by itself; a
/// change of them is looked at at once.
pub async fn refresh_for_ever(
    client: HttpChannelClient,
    mut accounts: watch::Receiver<Vec<AccountRef>>,
    mut stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        let wanted = accounts.borrow_and_update().clone();
        let pause = tokio::select! {
            _ = stop.changed() => return,
            pause = refresh_all(&client, &wanted) => pause,
        };
        tokio::select! {
            _ = stop.changed() => return,
            changed = accounts.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One after the other; how long to wait for the next round.
async fn refresh_all(client: &HttpChannelClient, accounts: &[AccountRef]) -> Duration {
    let mut pause = EVERY;
    for account in accounts {
        match client.refresh_keys(account).await {
            KeyRefresh::Learned | KeyRefresh::Nothing => {}
            KeyRefresh::Failed(why) => {
                tracing::warn!(%account, why, "the platform's certificates can't be fetched: tried again in a few minutes");
                pause = AFTER_FAILURE;
            }
        }
    }
    pause
}
