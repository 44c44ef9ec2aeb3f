//! Counts requests and bytes where they are sent and received, including retries.
//!
//! A caller puts a [`Counter`] into the extensions of a request. It is passed along to the place where the request is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use feedline_data::store::Traffic;
use http_body::{Body, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService, ReqwestConnector,
};

/// The traffic of one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter(Arc<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// The counts. All requests but the first are retries.
    pub(super) fn traffic(&self) -> Traffic {
        let requests = self.0.requests.load(Ordering::Relaxed);
        Traffic { bytes: self.0.bytes.load(Ordering::Relaxed), requests, retries: requests.saturating_sub(1) }
    }
}

/// Makes clients that count.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountingConnector;

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(CountingService(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct CountingService(HttpClient);

#[async_trait::async_trait]
impl HttpService for CountingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Requests of the client itself, for example for credentials, have no counter.
        let Some(counter) = request.extensions().get::<Counter>().cloned() else {
            return self.0.execute(request).await;
        };
        counter.0.requests.fetch_add(1, Ordering::Relaxed);
        // Counted before sending: a request that fails was sent too.
        let (parts, body) = self.0.execute(request).await?.into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(CountedBody { body, counter })))
    }
}

/// A body whose bytes are counted as they arrive.
struct CountedBody {
    body: HttpResponseBody,
    counter: Counter,
}

impl Body for CountedBody {
    type Data = <HttpResponseBody as Body>::Data;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.counter.0.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
