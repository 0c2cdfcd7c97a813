//! Orders that are parts of a WeChat Pay combine payment. The platform knows such an order by the number of the whole alone, so it
//! is asked about, and closed, together with the others: each answer is recorded for all of them.

use paidonce_channel::api::{Ask, CloseState, Doubt, KnownCombine, PaymentState, ReplyState, SubOrder};
use paidonce_order::command::Combine;

use crate::app::App;
use crate::asking::{Desk, FinalWord, Heard};
use crate::close::close_state;

impl App {
    /// How the whole stands; `None` when the platform has no such payment (yet).
    pub(crate) async fn ask_combine(&self, desk: Desk<'_>, combine: &Combine) -> Heard<Option<KnownCombine>> {
        let ask = Ask::CombinePayment { combine_out_trade_no: combine.combine_out_trade_no.clone() };
        self.put(desk, ask, combine_state).await
    }

    /// Closes the whole: the platform closes no single part. Its query comes first, since a close must name every part.
    pub(crate) async fn close_combine(&self, desk: Desk<'_>, combine: &Combine) -> Heard<CloseState> {
        match self.ask_combine(desk, combine).await {
            Heard::Final(FinalWord { state: Some(known), .. }) => {
                let combine_out_trade_no = combine.combine_out_trade_no.clone();
                self.put(desk, Ask::CloseCombine { combine_out_trade_no, known }, close_state).await
            }
            Heard::Final(FinalWord { state: None, platform_state, notice }) => {
                Heard::Final(FinalWord { state: CloseState::NotFound, platform_state, notice })
            }
            Heard::Refused(refusal) => Heard::Refused(refusal),
            Heard::Unknown(doubt) => Heard::Unknown(doubt),
            Heard::NotAsked => Heard::NotAsked,
        }
    }
}

/// What an answer about the whole says of this order.
pub(crate) fn part_of(desk: Desk<'_>, combine: &Combine, heard: Heard<Option<KnownCombine>>) -> Heard<PaymentState> {
    let FinalWord { state, platform_state, notice } = match heard {
        Heard::Final(word) => word,
        Heard::Refused(refusal) => return Heard::Refused(refusal),
        Heard::Unknown(doubt) => return Heard::Unknown(doubt),
        Heard::NotAsked => return Heard::NotAsked,
    };
    let Some(known) = state else {
        return Heard::Final(FinalWord { state: PaymentState::NotFound, platform_state, notice });
    };
    let part = known.sub_orders.into_iter().find(|part| is_ours(desk, part));
    let Some(SubOrder { state: Some(state), trade_state, .. }) = part else {
        let (no, order_no, account) = (&combine.combine_out_trade_no, desk.order_no, desk.account);
        let detail =
            format!("combine payment {no} has no sub-order {order_no} of {account}: it was opened with other terms");
        return Heard::Unknown(Doubt { code: "not_ours", detail });
    };
    Heard::Final(FinalWord { state, platform_state: trade_state, notice })
}

fn is_ours(desk: Desk<'_>, part: &SubOrder) -> bool {
    part.mchid == desk.account.account.as_str()
        && part.out_trade_no == desk.order_no.as_str()
        && part.sub_mchid.as_deref() == desk.sub_mchid
}

fn combine_state(state: ReplyState) -> Option<Option<KnownCombine>> {
    let ReplyState::Combine(state) = state else { return None };
    Some(state)
}
