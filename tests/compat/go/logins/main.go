// Logs in by franz-go as each of the job's users, and says "ok" or what the error is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type login struct {
	Bootstrap, Mechanism, User, Password, Token string
}

func (l login) mechanism() sasl.Mechanism {
	user := scram.Auth{User: l.User, Pass: l.Password}
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return user.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return user.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: l.Token}.AsMechanism()
	}
}

func (l login) try() string {
	seeds, sasl := kgo.SeedBrokers(l.Bootstrap), kgo.SASL(l.mechanism())
	client, err := kgo.NewClient(seeds, sasl, kgo.RequestRetries(0))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	var failed *kerr.Error
	switch {
	case errors.As(err, &failed):
		return failed.Message
	case err != nil:
		return err.Error()
	case len(topics) == 0:
		return "empty"
	}
	return "ok"
}

func main() {
	var jobs []login
	if err := json.NewDecoder(os.Stdin).Decode(&jobs); err != nil {
		log.Fatal(err)
	}
	for _, job := range jobs {
		fmt.Println(job.try())
	}
}
