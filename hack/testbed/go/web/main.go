// Web stands in for any program that serves: it tells how a request arrived and echoes WebSockets.
package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// The address is at the end of the argument that names it: --bind-addr=HOST:PORT, --ServerApp.port=PORT, --port=PORT.
func address() string {
	address := ":80"
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		if strings.HasSuffix(name, "port") {
			address = ":" + value
		} else if name == "--bind-addr" {
			address = value
		}
	}
	return address
}

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	listener, err := net.Listen("tcp", address())
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(answer))
	<-signals
}

func answer(writer http.ResponseWriter, request *http.Request) {
	if strings.EqualFold(request.Header.Get("Upgrade"), "websocket") {
		echo(writer, request)
		return
	}
	body, _ := io.ReadAll(request.Body)
	writer.Header().Set("Content-Type", "application/json")
	json.NewEncoder(writer).Encode(map[string]any{
		"method": request.Method, "path": request.RequestURI, "host": request.Host,
		"scheme": request.Header.Get("X-Forwarded-Proto"), "body": string(body),
	})
}

func echo(writer http.ResponseWriter, request *http.Request) {
	sum := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	connection, buffered, err := writer.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
	for {
		head, payload, err := frame(buffered.Reader)
		if err != nil {
			return
		}
		answer := []byte{head, byte(len(payload))}
		if len(payload) > 125 {
			answer = binary.BigEndian.AppendUint16([]byte{head, 126}, uint16(len(payload)))
		}
		if _, err := connection.Write(append(answer, payload...)); err != nil || head&15 == 8 {
			return
		}
	}
}

// One frame of a client, of less than 64 KiB: its first byte and its payload, unmasked.
func frame(reader *bufio.Reader) (byte, []byte, error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(reader, head); err != nil {
		return 0, nil, err
	}
	length := int(head[1] & 127)
	if length > 125 {
		long := make([]byte, 2)
		if _, err := io.ReadFull(reader, long); length == 127 || err != nil {
			return 0, nil, io.ErrUnexpectedEOF
		}
		length = int(binary.BigEndian.Uint16(long))
	}
	masked := make([]byte, 4+length)
	if _, err := io.ReadFull(reader, masked); err != nil {
		return 0, nil, err
	}
	mask, payload := masked[:4], masked[4:]
	for at := range payload {
		payload[at] ^= mask[at%4]
	}
	return head[0], payload, nil
}
