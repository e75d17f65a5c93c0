# Makes the keys and certificates of one control plane in a folder. Sourced by
# scripts/control-plane after assets.sh, which can build the tool for it.
# shellcheck shell=bash
# shellcheck disable=SC2154 # $keys_tool is set by find_keys_tool of assets.sh

make_keys() {
    local folder=$1 token
    if find_keys_tool; then
        "$keys_tool" "$folder" || die "cannot make keys in $folder"
    elif type -P openssl >/dev/null; then
        make_keys_with_openssl "$folder"
    else
        die "making keys needs Go or openssl: install one of them"
    fi
    token=$(od -An -N 16 -t x1 /dev/urandom | tr -d ' \n')
    # Written last: where this file is, the others are.
    printf '%s,admin,admin,"system:masters"\n' "$token" >"$folder/tokens.csv"
}

# The files that keys/main.go describes, on a machine without Go.
make_keys_with_openssl() {
    local folder=$1 name
    cat >"$folder/openssl.cnf" <<'EOF'
[req]
distinguished_name = subject
prompt = no
[subject]
CN = replaced
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, DNS:kubernetes, DNS:kubernetes.default, DNS:kubernetes.default.svc, IP:127.0.0.1, IP:::1
EOF
    for name in ca client-ca apiserver sa; do
        quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$folder/$name.key"
    done
    for name in ca client-ca; do
        quietly openssl req -x509 -new -config "$folder/openssl.cnf" -extensions authority \
            -subj "/CN=control-plane-$name" -days 3650 -key "$folder/$name.key" -out "$folder/$name.crt"
    done
    quietly openssl req -new -config "$folder/openssl.cnf" -subj /CN=kube-apiserver \
        -key "$folder/apiserver.key" -out "$folder/apiserver.csr"
    quietly openssl x509 -req -days 3650 -in "$folder/apiserver.csr" \
        -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -set_serial "1$RANDOM$RANDOM$RANDOM" \
        -extfile "$folder/openssl.cnf" -extensions server -out "$folder/apiserver.crt"
    quietly openssl pkey -in "$folder/sa.key" -pubout -out "$folder/sa.pub"
    rm "$folder/openssl.cnf" "$folder/apiserver.csr"
}

# Shows what a command prints only if it fails.
quietly() {
    local text
    text=$("$@" 2>&1) || die "$1 $2 failed: $text"
}
