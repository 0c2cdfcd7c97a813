//! HTTP around the platforms: WeChat Pay below `/v3`, Alipay at `/gateway.do`, the control API below `/sandbox`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::accounts::Channel;
use crate::control::{ConsoleRefund, ControlError, OrderName, Pay, PayCombined, SettleRefund, StartShare};
use crate::failures::FailNext;
use crate::keys::KeyError;
use crate::options::{AlipayKeyMode, Behaviour, KeyMode};
use crate::sandbox::{Advance, Shared};
use crate::wire::{Ending, Reply};
use crate::wxpay::authorization::Request;
use crate::{alipay, deliver, wxpay};

/// More than any call of either platform needs.
const BODY_BYTES_MAX: usize = 1024 * 1024;

type State = web::Data<Arc<Shared>>;

/// Listens. Errors: the address can't be listened on.
pub(crate) fn start(
    listen: SocketAddr,
    shared: Arc<Shared>,
) -> std::io::Result<(SocketAddr, ServerHandle, JoinHandle<std::io::Result<()>>)> {
    let state: State = web::Data::new(shared);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .app_data(web::PayloadConfig::new(BODY_BYTES_MAX))
            .configure(control_routes)
            .route("/gateway.do", web::to(to_alipay))
            .route("/dwbillcenter/{name}", web::get().to(alipay_file))
            .default_service(web::to(to_wxpay))
    })
    .workers(2)
    .client_disconnect_timeout(Duration::from_secs(1))
    .keep_alive(Duration::from_secs(75))
    .shutdown_timeout(1)
    .disable_signals()
    .bind(listen)?;
    let address = server.addrs().first().copied().unwrap_or(listen);
    let running = server.run();
    let handle = running.handle();
    Ok((address, handle, tokio::spawn(running)))
}

fn control_routes(config: &mut web::ServiceConfig) {
    config
        .app_data(web::JsonConfig::default().content_type_required(false).error_handler(|error, _| {
            let answer = HttpResponse::BadRequest().json(json!({ "error": error.to_string() }));
            actix_web::error::InternalError::from_response(error, answer).into()
        }))
        .route("/sandbox/open", web::post().to(open))
        .route("/sandbox/pay", web::post().to(pay))
        .route("/sandbox/pay-twice", web::post().to(pay_twice))
        .route("/sandbox/pay-late", web::post().to(pay_late))
        .route("/sandbox/open-combined", web::post().to(open_combined))
        .route("/sandbox/pay-combined", web::post().to(pay_combined))
        .route("/sandbox/refund", web::post().to(refund))
        .route("/sandbox/settle-refund", web::post().to(settle_refund))
        .route("/sandbox/share", web::post().to(share))
        .route("/sandbox/close", web::post().to(close))
        .route("/sandbox/finish", web::post().to(finish))
        .route("/sandbox/fail-next", web::post().to(fail_next))
        .route("/sandbox/fail-next", web::delete().to(fail_no_more))
        .route("/sandbox/behaviour", web::get().to(get_behaviour))
        .route("/sandbox/behaviour", web::put().to(put_behaviour))
        .route("/sandbox/keys", web::post().to(keys))
        .route("/sandbox/advance-time", web::post().to(advance_time))
        .route("/sandbox/deliver-now", web::post().to(deliver_now))
        .route("/sandbox/state", web::get().to(get_state));
}

async fn to_wxpay(http: HttpRequest, body: web::Bytes, shared: State) -> HttpResponse {
    let header = |name: &str| text_header(http.headers(), name);
    let request = Request {
        method: http.method().to_string(),
        path: http.uri().path().to_owned(),
        query: http.uri().query().unwrap_or_default().to_owned(),
        authorization: header("authorization"),
        serial: header("wechatpay-serial"),
        accept: header("accept"),
        user_agent: header("user-agent"),
        content_type: header("content-type"),
        body: body.to_vec(),
    };
    // RSA outside the lock, on both sides of it.
    let caller = wxpay::authorization::check(&shared.accounts, &request, shared.now());
    let answer = shared.play(|platforms, now| platforms.wxpay(&request, caller, now));
    let (status, code) = (answer.status, answer.refusal_code().to_owned());
    tracing::info!(method = request.method, path = request.path, status, code, trouble = ?answer.trouble, "wxpay call");
    write(wxpay::answer::write(answer), &shared).await
}

async fn to_alipay(http: HttpRequest, body: web::Bytes, shared: State) -> HttpResponse {
    let query = http.uri().query().unwrap_or_default();
    let caller = alipay::request::check(&shared.accounts, query, &body, shared.now());
    let answer = shared.play(|platforms, now| platforms.alipay(caller, now));
    let code = answer.node.get("sub_code").or(answer.node.get("code")).and_then(Value::as_str).unwrap_or_default();
    tracing::info!(node = answer.node_name, code, trouble = ?answer.trouble, "alipay call");
    write(alipay::answer::write(&answer), &shared).await
}

/// A bill of Alipay: nobody signs, the address is the secret.
async fn alipay_file(name: web::Path<String>, shared: State) -> HttpResponse {
    match shared.look(|platforms, now| platforms.alipay_download(&name, now)) {
        Some(bytes) => HttpResponse::Ok().content_type("application/zip").body(bytes),
        None => HttpResponse::Forbidden().finish(),
    }
}

fn text_header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn write(reply: Result<Reply, KeyError>, shared: &Shared) -> HttpResponse {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => {
            tracing::error!(%error, "an answer could not be signed");
            return HttpResponse::InternalServerError().finish();
        }
    };
    match reply.ending {
        Ending::Sent => {}
        Ending::Never => {
            let seconds = shared.look(|platforms, _| platforms.behaviour.timeout_seconds);
            tokio::time::sleep(Duration::from_secs(u64::from(seconds))).await;
            return breaks_off();
        }
        Ending::Broken => return breaks_off(),
    }
    let mut response = HttpResponse::build(StatusCode::from_u16(reply.status).unwrap_or(StatusCode::BAD_GATEWAY));
    for (name, value) in &reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::from_str(value)) {
            response.insert_header((name, value));
        }
    }
    response.body(reply.into_body())
}

/// A head, and then the end of the connection.
fn breaks_off() -> HttpResponse {
    let ends = std::io::Error::other("the connection ends here");
    HttpResponse::Ok().streaming(futures_util::stream::once(async move { Err::<web::Bytes, _>(ends) }))
}

fn done<T: Serialize>(outcome: Result<T, ControlError>) -> HttpResponse {
    match outcome {
        Ok(done) => HttpResponse::Ok().json(done),
        Err(error) => {
            let status = match &error {
                ControlError::Invalid(_) => StatusCode::BAD_REQUEST,
                ControlError::NotFound(_) => StatusCode::NOT_FOUND,
                ControlError::Refused(_) => StatusCode::CONFLICT,
            };
            HttpResponse::build(status).json(json!({ "error": error.to_string() }))
        }
    }
}

async fn open(shared: State, wanted: web::Json<Pay>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.open(&wanted, now)))
}

async fn pay(shared: State, wanted: web::Json<Pay>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.pay(&wanted, now)))
}

async fn pay_twice(shared: State, wanted: web::Json<Pay>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.pay_twice(&wanted, now)).map(|orders| json!({ "orders": orders })))
}

async fn pay_late(shared: State, wanted: web::Json<Pay>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.pay_late(&wanted, now)))
}

async fn open_combined(shared: State, wanted: web::Json<PayCombined>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.open_combined(&wanted, now)).map(|orders| json!({ "orders": orders })))
}

async fn pay_combined(shared: State, wanted: web::Json<PayCombined>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.pay_combined(&wanted, now)).map(|orders| json!({ "orders": orders })))
}

async fn refund(shared: State, wanted: web::Json<ConsoleRefund>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.console_refund(&wanted, now)))
}

async fn settle_refund(shared: State, wanted: web::Json<SettleRefund>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.decide_refund(&wanted, now)))
}

async fn share(shared: State, wanted: web::Json<StartShare>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.start_share_of(&wanted, now)))
}

async fn close(shared: State, wanted: web::Json<OrderName>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.close(&wanted, now)))
}

async fn finish(shared: State, wanted: web::Json<OrderName>) -> HttpResponse {
    done(shared.play(|platforms, now| platforms.finish(&wanted, now)))
}

async fn fail_next(shared: State, wanted: web::Json<FailNext>) -> HttpResponse {
    let wanted = wanted.into_inner();
    shared.play(|platforms, _| platforms.fail_next(wanted.clone()));
    HttpResponse::Ok().json(wanted)
}

async fn fail_no_more(shared: State) -> HttpResponse {
    shared.play(|platforms, _| platforms.fail_no_more());
    HttpResponse::NoContent().finish()
}

async fn get_behaviour(shared: State) -> HttpResponse {
    HttpResponse::Ok().json(shared.look(|platforms, _| platforms.behaviour.clone()))
}

/// Members that are left out take their defaults.
async fn put_behaviour(shared: State, wanted: web::Json<Behaviour>) -> HttpResponse {
    let wanted = wanted.into_inner();
    if let Err(problem) = wanted.check() {
        return done::<()>(Err(ControlError::Invalid(problem)));
    }
    shared.play(|platforms, _| platforms.behaviour = wanted.clone());
    HttpResponse::Ok().json(wanted)
}

/// `POST /sandbox/keys`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyChange {
    /// What signs callbacks from now on.
    #[serde(default)]
    pub mode: Option<KeyMode>,
    /// Whether a new platform certificate is issued; it signs from now on.
    #[serde(default)]
    pub new_certificate: bool,
    /// How Alipay and its callers know each other from now on.
    #[serde(default)]
    pub alipay_mode: Option<AlipayKeyMode>,
    /// Whether Alipay gets a new certificate; in certificate mode it signs from now on.
    #[serde(default)]
    pub new_alipay_certificate: bool,
}

async fn keys(shared: State, wanted: web::Json<KeyChange>) -> HttpResponse {
    if let Some(mode) = wanted.mode {
        shared.play(|platforms, _| platforms.behaviour.wxpay_keys = mode);
    }
    if let Some(mode) = wanted.alipay_mode {
        shared.play(|platforms, _| platforms.behaviour.alipay_keys = mode);
    }
    let new = [(wanted.new_certificate, Channel::Wxpay), (wanted.new_alipay_certificate, Channel::Alipay)];
    for (_, channel) in new.into_iter().filter(|(wanted, _)| *wanted) {
        if let Err(error) = shared.rotate(channel) {
            return HttpResponse::InternalServerError().json(json!({ "error": error.to_string() }));
        }
    }
    HttpResponse::Ok().json(shared.look(|platforms, _| {
        let serials: Vec<&str> = platforms.ring.wxpay_certificates.iter().map(|one| one.serial.as_str()).collect();
        let alipay_cert_sn = platforms.ring.alipay_certificates.newest().map(|(_, number)| number);
        json!({
            "mode": platforms.behaviour.wxpay_keys, "certificate_serials": serials,
            "alipay_mode": platforms.behaviour.alipay_keys, "alipay_cert_sn": alipay_cert_sn,
        })
    }))
}

async fn advance_time(shared: State, wanted: web::Json<Advance>) -> HttpResponse {
    shared.advance(wanted.into_inner());
    HttpResponse::Ok().json(json!({ "now": shared.now().rfc3339() }))
}

async fn deliver_now(shared: State) -> HttpResponse {
    HttpResponse::Ok().json(deliver::deliver_now(&shared).await)
}

/// `?order_no=`.
#[derive(Debug, Deserialize)]
struct Wanted {
    order_no: Option<String>,
}

async fn get_state(shared: State, wanted: web::Query<Wanted>) -> HttpResponse {
    HttpResponse::Ok().json(shared.play(|platforms, now| platforms.state(wanted.order_no.as_deref(), now)))
}
