//! The TLS side of a server: from PEM to a configuration, and the configuration that can be swapped while connections are open.
//!
//! `Current` is read once per connection by connection threads and replaced by the webhook thread. The whole configuration is
//! swapped, so the client CA changes together with the certificate. INVARIANT: what does not fit together never becomes current.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use super::x509;

/// LIMIT: bytes of one PEM file. A bundle of every public CA is a quarter of this; a device or a log file given by mistake must
/// not fill the memory.
const PEM_SIZE: u64 = 1024 * 1024;

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
    /// What the server sends besides, to lead a caller from the certificate to a CA it knows.
    intermediates: Vec<CertificateDer<'static>>,
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
    let intermediates = certified.cert.iter().skip(1).cloned().collect();
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Resumption saves the API server nothing (it keeps connections), would cost memory for every caller there is, and
    // would let a caller in whose CA has been taken out meanwhile.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Identity {
        config: Arc::new(config),
        certificate: leaf,
        intermediates,
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

pub(super) fn read(what: &'static str, path: &Path) -> Result<Pem, TlsError> {
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

/// INVARIANT: a certificate is only registered together with CAs that really signed it for the name that callers use; anything
/// else would make every call of a `Fail` webhook fail.
pub(crate) fn check_bundle(identity: &Identity, bundle: &Pem, name: &str) -> Result<(), TlsError> {
    let unfit = |cause: String| TlsError::Unfit {
        bundle: bundle.from.clone(),
        name: name.to_owned(),
        cause,
    };
    let server_name = ServerName::try_from(name).map_err(|error| unfit(error.to_string()))?;
    let roots = roots(std::slice::from_ref(bundle))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| unfit(error.to_string()))?;
    verifier
        .verify_server_cert(
            &identity.certificate,
            &identity.intermediates,
            &server_name,
            &[],
            UnixTime::now(),
        )
        .map(drop)
        .map_err(|error| unfit(error.to_string()))
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
    /// The CAs do not vouch for the certificate.
    Unfit {
        bundle: String,
        name: String,
        cause: String,
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
            TlsError::Unfit {
                bundle,
                name,
                cause,
            } => {
                write!(
                    out,
                    "the certificate would be refused by callers of '{name}': {cause}; give the CA that signed it, {bundle} does not vouch for it"
                )
            }
            TlsError::Verifier(cause) => write!(out, "client CA is not usable: {cause}"),
            TlsError::Setup(cause) => write!(out, "TLS cannot be set up: {cause}"),
        }
    }
}

impl std::error::Error for TlsError {}
