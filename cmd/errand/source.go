package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/errandq/errand/policy"
)

// presets are the predefined policies by their names on the command line.
var presets = []struct {
	name, about string
	policy      policy.Policy
}{
	{"default", "jobs of errand", policy.Default()},
	{"retries-5", "retries that double from 15 s; here 5, any number of them is retries-N", policy.Retries(5)},
	{"sns-managed", "SNS to endpoints managed by AWS: Lambda, SQS, Firehose", policy.SNSManaged()},
	{"sns-customer", "SNS to SMTP, SMS and mobile push; to Firehose when throttled", policy.SNSCustomer()},
	{"sns-http", "SNS to HTTP/S endpoints", policy.SNSHTTP()},
	{"sdk-standard", "AWS SDKs, standard mode", policy.SDKStandard()},
	{"exponential-100ms", "AWS documentation, 2^n * 100 ms; here to 1 min and 10 retries", policy.Exponential100ms(10, time.Minute)},
	{"qldb", "driver for Amazon QLDB", policy.QLDB()},
	{"webhook", "endpoints of others over HTTP, as Standard Webhooks advises", policy.Webhook()},
	{"forever", "devices that are offline for long; here up to 1 h apart", policy.Forever(time.Hour)},
}

// readPolicy returns the policy that an argument names: a preset, or the retry
// section in effect of the document in a file.
func readPolicy(in io.Reader, arg string, profile policy.Profile) (policy.Policy, error) {
	doc, err := readDelivery(in, arg, profile)
	if err != nil {
		return policy.Policy{}, err
	}
	return doc.Or(policy.SystemDefault()).For(policy.Retryable), nil
}

// readDelivery returns the document that an argument names: one with a preset, or that
// in a file.
func readDelivery(in io.Reader, arg string, profile policy.Profile) (policy.Document, error) {
	d, err := readTopicDelivery(in, arg, profile)
	return d.Document, err
}

// readTopicDelivery is readDelivery for a document of a topic.
func readTopicDelivery(in io.Reader, arg string, profile policy.Profile) (policy.Topic, error) {
	for _, p := range presets {
		if p.name == arg {
			return policy.Topic{Document: policy.Document{Retry: &p.policy}}, nil
		}
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(arg, "retries-")); err == nil && strings.HasPrefix(arg, "retries-") {
		p := policy.Retries(n)
		return policy.Topic{Document: policy.Document{Retry: &p}}, p.Validate()
	}
	d, err := readTopicDocument(in, arg, profile)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(arg, `./\`) {
		err = fmt.Errorf("%s is neither a file nor a preset; presets are listed by: errand policy presets", arg)
	}
	return d, err
}

// maxFile is more than any document needs; it keeps a wrong file or an endless
// stream from filling the memory.
const maxFile = 1 << 20

// readDocument reads a document of any form from a file, or from in if the name
// is -.
func readDocument(in io.Reader, name string, profile policy.Profile) (policy.Document, error) {
	d, err := readTopicDocument(in, name, profile)
	return d.Document, err
}

// readTopicDocument is readDocument for a document of a topic. One of a subscription
// becomes one that disables nothing.
func readTopicDocument(in io.Reader, name string, profile policy.Profile) (policy.Topic, error) {
	data, err := readWhole(in, name)
	if err != nil {
		return policy.Topic{}, err
	}
	return policy.Parse(data, profile)
}

// readWhole reads a file that is not larger than any should be, or in if the name is -.
func readWhole(in io.Reader, name string) ([]byte, error) {
	data, err := readFile(in, name)
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxFile)
	}
	return data, err
}

// readFile reads a file, or in if the name is -, up to one byte more than is
// allowed.
func readFile(in io.Reader, name string) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	return io.ReadAll(io.LimitReader(in, maxFile+1))
}
