//! Asking WeChat Pay (protocol facts A1.4, A3 to A6).
//!
//! | step | module |
//! |---|---|
//! | path, query, body; the signed `Authorization` header | `request` |
//! | verify the answer's headers over its raw body, also of an empty 204 | [`WxpayApi::read`] |
//! | an error code: refusal, final word or doubt | `codes` |
//! | the content, by the readers of the notifications | `answer`, `certificates` |

mod answer;
mod certificates;
mod codes;
mod request;

use std::sync::Arc;

use paidonce_order::ids::AccountRef;

use super::account::WxpayAccount;
use super::headers::SignatureHeaders;
use crate::accounts::OurAccounts;
use crate::answer::{Answering, doubt, unverified_doubt};
use crate::api::{ApiAnswer, ApiCall, ApiMoment, ApiRequest, ApiResponse, Ask, CallProblem, ChannelApi, Doubt};

/// Asks for one mchid.
#[derive(Debug, Clone)]
pub(crate) struct WxpayApi {
    account: Arc<WxpayAccount>,
    ours: OurAccounts,
}

impl WxpayApi {
    /// `None` when the account has no credentials.
    pub(crate) fn find(account: Arc<WxpayAccount>, ours: OurAccounts) -> Option<Self> {
        account.can_ask().then_some(Self { account, ours })
    }

    /// Checks the signature. A certificate list may be signed by a certificate that only it contains: that one is trusted
    /// after the APIv3 key opened it, and within its dates (fact A1.4).
    fn verify<'r>(&self, call: &ApiCall, response: ApiResponse<'r>) -> Result<(SignatureHeaders<'r>, String), Doubt> {
        let refused = |error| unverified_doubt(&error, response);
        let headers = SignatureHeaders::read(response.headers).map_err(refused)?;
        let known = headers.verify(&self.account, response.body, response.now);
        let verified = match (known, &call.ask) {
            (Err(crate::VerifyError::UnknownSerial { serial }), Ask::Certificates) => {
                let unknown = crate::VerifyError::UnknownSerial { serial };
                let told =
                    certificates::open(response.body, &self.account, response.now).map_err(|_| refused(unknown))?;
                headers.verify(&self.account.with_learned_keys(&told), response.body, response.now)
            }
            (known, _) => known,
        };
        verified.map(|key_id| (headers, key_id)).map_err(refused)
    }
}

impl ChannelApi for WxpayApi {
    fn account(&self) -> &AccountRef {
        self.account.account()
    }

    fn request(&self, call: &ApiCall, moment: &ApiMoment) -> Result<ApiRequest, CallProblem> {
        request::build(&self.account, call, moment)
    }

    fn key_question(&self, _: ApiResponse<'_>) -> Option<Ask> {
        Some(Ask::Certificates)
    }

    fn read(&self, call: &ApiCall, response: ApiResponse<'_>) -> ApiAnswer {
        let (headers, key_id) = match self.verify(call, response) {
            Ok(verified) => verified,
            Err(doubt) => return ApiAnswer::Unknown(doubt),
        };
        let evidence_headers = headers.evidence();
        let answering = Answering { account: self.account.account(), response, evidence_headers, key_id };
        if response.status >= 500 {
            let detail = format!("status {}: {}", response.status, codes::shown(response.body));
            return ApiAnswer::Unknown(doubt("server_error", detail));
        }
        if response.status >= 400 {
            return codes::read(call, answering);
        }
        answer::read(call, answering, &answer::Context { account: &self.account, ours: &self.ours })
    }
}
