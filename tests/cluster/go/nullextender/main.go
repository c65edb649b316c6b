// A scheduler extender that agrees with everything at once: the ceiling that a real one is measured against.
// It binds like a real one, by one POST to the API server, so that both do the same work there.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

type arguments struct {
	Pod       json.RawMessage
	NodeNames []string
}

type filtered struct {
	NodeNames   []string
	FailedNodes map[string]string
	Error       string
}

type score struct {
	Host  string
	Score int64
}

type binding struct {
	PodName, PodNamespace, PodUID, Node string
}

type bound struct {
	Error string
}

func main() {
	address := flag.String("listen", "127.0.0.1:8888", "address to listen on")
	server := flag.String("server", "https://10.96.0.1", "API server")
	ca := flag.String("ca", "", "certificate authority of the API server")
	certificate := flag.String("certificate", "", "client certificate")
	key := flag.String("key", "", "key of the client certificate")
	flag.Parse()
	client := connect(*ca, *certificate, *key)

	http.HandleFunc("/filter", func(w http.ResponseWriter, r *http.Request) {
		var asked arguments
		if read(w, r, &asked) {
			answer(w, filtered{NodeNames: asked.NodeNames, FailedNodes: map[string]string{}})
		}
	})
	http.HandleFunc("/prioritize", func(w http.ResponseWriter, r *http.Request) {
		var asked arguments
		if read(w, r, &asked) {
			scores := make([]score, len(asked.NodeNames))
			for i, name := range asked.NodeNames {
				scores[i] = score{Host: name}
			}
			answer(w, scores)
		}
	})
	http.HandleFunc("/bind", func(w http.ResponseWriter, r *http.Request) {
		var asked binding
		if read(w, r, &asked) {
			answer(w, bound{Error: bind(client, *server, asked)})
		}
	})
	http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServe(*address, nil))
}

func connect(ca, certificate, key string) *http.Client {
	settings := &tls.Config{}
	if ca != "" {
		trusted, err := os.ReadFile(ca)
		if err != nil {
			log.Fatal(err)
		}
		settings.RootCAs = x509.NewCertPool()
		settings.RootCAs.AppendCertsFromPEM(trusted)
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			log.Fatal(err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}}
}

func bind(client *http.Client, server string, asked binding) string {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Binding",
		"metadata": map[string]string{"name": asked.PodName, "namespace": asked.PodNamespace, "uid": asked.PodUID},
		"target":   map[string]string{"apiVersion": "v1", "kind": "Node", "name": asked.Node},
	})
	if err != nil {
		return err.Error()
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", server, asked.PodNamespace, asked.PodName)
	response, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	said, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return string(said)
	}
	return ""
}

func read(w http.ResponseWriter, r *http.Request, asked any) bool {
	if err := json.NewDecoder(r.Body).Decode(asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Print(err)
	}
}
