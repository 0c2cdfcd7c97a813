//! Business dates on the command line.

use paidonce_app::audit::totals::Days;
use time::Date;
use time::macros::format_description;

use crate::exit::Stop;

/// `--from` and `--to`. Errors: [`Stop`].
pub(super) fn read(from: Option<&str>, to: Option<&str>) -> Result<Days, Stop> {
    let day = |name: &str, text: &str| {
        let wanted = |_| Stop::usage(format!("{name} wants a day such as 2026-01-31, not {text:?}"));
        Date::parse(text, format_description!("[year]-[month]-[day]")).map_err(wanted)
    };
    let from = from.map(|text| day("--from", text)).transpose()?;
    let to = to.map(|text| day("--to", text)).transpose()?;
    if from.zip(to).is_some_and(|(from, to)| to < from) {
        return Err(Stop::usage("--to is before --from"));
    }
    Ok(Days { from, to })
}
