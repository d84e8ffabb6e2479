//! Printing a response: once, or again whenever it changes (`--watch`).

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::commands::Context;
use crate::failure::Result;
use crate::terminal::output;
use crate::terminal::progress::Progress;
use crate::transport::api_client::ApiClient;
use crate::transport::backoff::Backoff;

/// The interval of `--watch`.
const EVERY: Duration = Duration::from_secs(2);

/// Clears the terminal and moves the cursor to the top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// The `--watch` option.
#[derive(Args, Clone, Copy, Debug)]
pub struct Watch {
    /// Print again whenever something changes, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// The options of lists of things that an organization shares.
#[derive(Args, Clone, Copy, Debug)]
pub struct Listing {
    /// Include those of the whole organization
    #[arg(long, alias = "organization")]
    pub(crate) org: bool,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

impl Listing {
    /// The query parameters, with `limit` items per page.
    pub(crate) fn query(self, limit: u32) -> [(&'static str, String); 2] {
        [("include_org", self.org.to_string()), ("limit", limit.to_string())]
    }
}

/// Prints a body: as it is with `--json`, otherwise as `render` formats it.
pub(crate) fn print_body(ctx: &Context<'_>, body: &Value, render: impl Fn(&Value) -> String) -> Result<()> {
    if ctx.options.json { output::print_json(body) } else { output::print_text(&render(body)) }
}

/// A GET call whose response is printed.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    path: &'a str,
    query: &'a [(&'a str, String)],
    /// The name of the list in the body, if all its pages are wanted.
    list: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// A call for one thing.
    pub(crate) fn item(path: &'a str) -> Self {
        Query { path, query: &[], list: None }
    }

    /// A call for the first page of a list.
    pub(crate) fn first_page(path: &'a str, query: &'a [(&'a str, String)]) -> Self {
        Query { path, query, list: None }
    }

    /// A call for all pages of a list.
    pub(crate) fn all_pages(path: &'a str, query: &'a [(&'a str, String)], name: &'a str) -> Self {
        Query { path, query, list: Some(name) }
    }

    async fn fetch(self, api: &ApiClient) -> Result<Value> {
        match self.list {
            Some(name) => api.get_all_pages(self.path, self.query, name).await,
            None => api.get(self.path, self.query).await,
        }
    }
}

/// Prints the response to a query, and with `--watch` prints it again whenever it changes.
pub(crate) async fn print_query(
    ctx: &Context<'_>,
    watch: Watch,
    query: Query<'_>,
    render: impl Fn(&Value) -> String,
) -> Result<()> {
    let mut before = query.fetch(&ctx.api).await?;
    if !watch.watch {
        return print_body(ctx, &before, render);
    }
    let is_terminal = ctx.environment.width.is_some() && !ctx.options.json;
    let show = |body: &Value| {
        if is_terminal {
            output::print_text(&format!("{CLEAR}{}", render(body)))
        } else {
            print_body(ctx, body, &render)
        }
    };
    show(&before)?;
    let mut backoff = Backoff::default();
    backoff.record_success();
    loop {
        let asked = async {
            tokio::time::sleep(EVERY).await;
            query.fetch(&ctx.api.without_progress()).await
        };
        let asked = tokio::select! {
            biased;
            // Ctrl-C is the regular end of `--watch`.
            () = ctx.interrupts.pressed() => return Ok(()),
            asked = asked => asked,
        };
        match asked {
            Ok(now) => {
                backoff.record_success();
                if now != before {
                    show(&now)?;
                    before = now;
                }
            }
            Err(failure) => backoff.wait_after(failure, &Progress::new(ctx)).await?,
        }
    }
}
