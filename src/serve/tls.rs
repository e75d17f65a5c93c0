//! The TLS side of a server: from PEM to a configuration, and the configuration that can be swapped while connections are open.
//!
//! `Current` is read once per connection by connection threads and replaced by whoever has a newer certificate: the thread of
//! `watch_files` here, or the rooms that keep a certificate in a Secret. The whole configuration is swapped, so the client CA
//! changes together with the certificate. INVARIANT: what does not fit together never becomes current.

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use jiff::Timestamp;
use log::{info, warn};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use super::x509;

/// LIMIT: bytes of one PEM file. A bundle of every public CA is a quarter of this; a device or a log file given by mistake must
/// not fill the memory.
const PEM_SIZE: u64 = 1024 * 1024;

/// How often certificate files are compared: a new pair is to be served within ten seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// PEM text and where it came from, for error messages.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pem {
    pub(crate) from: String,
    pub(crate) bytes: Vec<u8>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pem({})", self.from)
    }
}

/// Everything a TLS server is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Material {
    /// The certificate chain, leaf first.
    pub(crate) certificate: Pem,
    pub(crate) key: Pem,
    /// CAs of client certificates; none means that callers need no certificate.
    pub(crate) client_authorities: Vec<Pem>,
}

/// A configuration that is known to work.
pub(crate) struct Identity {
    config: Arc<ServerConfig>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

/// Checks the material and makes a configuration of it: TLS 1.2 and 1.3, HTTP/1.1 only.
pub(crate) fn build(material: &Material) -> Result<Identity, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let certified = certified_key(material, &provider)?;
    let unusable = |cause: String| TlsError::Certificate {
        from: material.certificate.from.clone(),
        cause,
    };
    let leaf = certified
        .end_entity_cert()
        .map_err(|error| unusable(error.to_string()))?
        .clone()
        .into_owned();
    let facts = x509::read(&leaf).ok_or_else(|| unusable("not an X.509 certificate".to_owned()))?;

    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let builder = if material.client_authorities.is_empty() {
        builder.with_no_client_auth()
    } else {
        let roots = Arc::new(roots(&material.client_authorities)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
        builder.with_client_cert_verifier(
            verifier.map_err(|error| TlsError::Verifier(error.to_string()))?,
        )
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Resumption saves the API server nothing (it keeps connections), would cost memory for every caller there is, and
    // would let a caller in whose CA has been taken out meanwhile.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Identity {
        config: Arc::new(config),
        certificate: leaf,
        not_before: facts.not_before,
        not_after: facts.not_after,
    })
}

/// HX-07: says which of the two is empty, unreadable, or does not belong to the other.
fn certified_key(material: &Material, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let Material {
        certificate, key, ..
    } = material;
    for (what, pem) in [("certificate", certificate), ("private key", key)] {
        if pem.bytes.trim_ascii().is_empty() {
            return Err(TlsError::Empty {
                what,
                from: pem.from.clone(),
            });
        }
    }
    let chain = certificates(certificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate {
            from: certificate.from.clone(),
        });
    }
    let unusable = |cause: String| TlsError::Key {
        from: key.from.clone(),
        cause,
    };
    let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey {
            from: key.from.clone(),
        },
        error => unusable(error.to_string()),
    })?;
    let signer = provider
        .key_provider
        .load_private_key(private)
        .map_err(|error| unusable(error.to_string()))?;
    let certified = CertifiedKey::new(chain, signer);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::Mismatch {
                certificate: certificate.from.clone(),
                key: key.from.clone(),
            })
        }
        Err(error) => Err(TlsError::Certificate {
            from: certificate.from.clone(),
            cause: error.to_string(),
        }),
    }
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(&pem.bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Certificate {
            from: pem.from.clone(),
            cause: error.to_string(),
        })
}

/// Every file must bring at least one CA: a file that was left out by mistake would otherwise just shut callers out.
fn roots(authorities: &[Pem]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for pem in authorities {
        let found = certificates(pem)?;
        if found.is_empty() {
            return Err(TlsError::NoAuthority {
                from: pem.from.clone(),
            });
        }
        for authority in found {
            roots
                .add(authority)
                .map_err(|error| TlsError::Certificate {
                    from: pem.from.clone(),
                    cause: error.to_string(),
                })?;
        }
    }
    Ok(roots)
}

/// The configuration that new connections get.
pub(crate) struct Current(RwLock<Arc<Identity>>);

impl Current {
    pub(crate) fn new(identity: Identity) -> Arc<Current> {
        Arc::new(Current(RwLock::new(Arc::new(identity))))
    }

    pub(crate) fn load(&self) -> Arc<Identity> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, identity: Identity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(identity);
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.load().config)
    }
}

/// Certificate files.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_authorities: Vec<PathBuf>,
}

impl Files {
    pub(crate) fn load(&self) -> Result<Material, TlsError> {
        Ok(Material {
            certificate: read("certificate", &self.certificate)?,
            key: read("private key", &self.key)?,
            client_authorities: self
                .client_authorities
                .iter()
                .map(|path| read("client CA", path))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn read(what: &'static str, path: &Path) -> Result<Pem, TlsError> {
    let from = path.display().to_string();
    let failed = |cause| TlsError::Unreadable {
        what,
        from: from.clone(),
        cause,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(PEM_SIZE.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|size| size > PEM_SIZE) {
        return Err(TlsError::TooLarge { what, from });
    }
    Ok(Pem { from, bytes })
}

/// Follows certificate files until `stop` is dropped. The body of a long-lived thread.
///
/// `served` is what `current` was made of. Content is compared, not names or times: the kubelet replaces files by renaming a
/// directory link, of which a watch on the file sees nothing.
pub(crate) fn watch_files(
    files: Files,
    served: Material,
    current: &Current,
    stop: &Receiver<Infallible>,
) {
    let mut follower = Follower::new(files, served);
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(POLL_INTERVAL) {
        follower.look(current);
    }
}

pub(super) struct Follower {
    files: Files,
    served: Material,
    /// The last thing that was wrong, and the content it was wrong with: the same is not said twice.
    complaint: Option<(Option<Material>, String)>,
}

/// What a look at the files brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Same,
    Swapped,
    /// Something is wrong and the old certificate stays; `said` tells whether this was news.
    Broken {
        said: bool,
    },
}

impl Follower {
    pub(super) fn new(files: Files, served: Material) -> Follower {
        Follower {
            files,
            served,
            complaint: None,
        }
    }

    pub(super) fn look(&mut self, current: &Current) -> Look {
        let found = match self.files.load() {
            Ok(found) => found,
            Err(error) => return self.complain(None, &error),
        };
        if found == self.served {
            self.complaint = None;
            return Look::Same;
        }
        match build(&found) {
            Ok(identity) => {
                info!(
                    "serving the new certificate of {}, valid until {}",
                    found.certificate.from, identity.not_after
                );
                current.replace(identity);
                self.served = found;
                self.complaint = None;
                Look::Swapped
            }
            Err(error) => self.complain(Some(found), &error),
        }
    }

    fn complain(&mut self, found: Option<Material>, error: &TlsError) -> Look {
        let complaint = Some((found, error.to_string()));
        let said = self.complaint != complaint;
        if said {
            warn!("{error}; still serving the previous certificate");
            self.complaint = complaint;
        }
        Look::Broken { said }
    }
}

/// Why no configuration can be made.
#[derive(Debug)]
pub(crate) enum TlsError {
    Unreadable {
        what: &'static str,
        from: String,
        cause: io::Error,
    },
    TooLarge {
        what: &'static str,
        from: String,
    },
    Empty {
        what: &'static str,
        from: String,
    },
    NoCertificate {
        from: String,
    },
    NoKey {
        from: String,
    },
    NoAuthority {
        from: String,
    },
    Certificate {
        from: String,
        cause: String,
    },
    Key {
        from: String,
        cause: String,
    },
    Mismatch {
        certificate: String,
        key: String,
    },
    Verifier(String),
    Setup(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Unreadable { what, from, cause } => {
                write!(out, "{what} {from} cannot be read: {cause}")
            }
            TlsError::TooLarge { what, from } => {
                write!(
                    out,
                    "{what} {from} is larger than {PEM_SIZE} bytes, so it is not a PEM file"
                )
            }
            TlsError::Empty { what, from } => write!(out, "{what} {from} is empty"),
            TlsError::NoCertificate { from } => {
                write!(
                    out,
                    "no certificate found in {from}; a section \"BEGIN CERTIFICATE\" is expected"
                )
            }
            TlsError::NoKey { from } => {
                write!(
                    out,
                    "no private key found in {from}; a section \"BEGIN PRIVATE KEY\" is expected"
                )
            }
            TlsError::NoAuthority { from } => {
                write!(out, "no client CA certificate found in {from}")
            }
            TlsError::Certificate { from, cause } => {
                write!(out, "certificate {from} is not usable: {cause}")
            }
            TlsError::Key { from, cause } => {
                write!(out, "private key {from} is not usable: {cause}")
            }
            TlsError::Mismatch { certificate, key } => {
                write!(
                    out,
                    "private key {key} does not belong to certificate {certificate}; replace both together"
                )
            }
            TlsError::Verifier(cause) => write!(out, "client CA is not usable: {cause}"),
            TlsError::Setup(cause) => write!(out, "TLS cannot be set up: {cause}"),
        }
    }
}

impl std::error::Error for TlsError {}
